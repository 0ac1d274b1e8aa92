"""`corsdice train`, `ope`, `evaluate`, `report`: from a log file to a policy, what it would cost, and what to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corsdice.cli.learn_configs import EvaluateConfig, ReportConfig, TrainConfig
from corsdice.cli.ope import read, show_estimates
from corsdice.errors import UserError
from corsdice.files import write_json
from corsdice.report import terminal
from corsdice.report.run import run_report
from corsdice.training import assess, directory
from corsdice.training.run import plan_of, split

OPTIONS = (
    "steps",
    "widths",
    "batch_size",
    "divergence",
    "extraction_divergence",
    "estimate",
    "margin",
    "use_model",
    "damping",
    "critics",
    "components",
    "squash",
    "way",
    "candidates",
    "guidance_scale",
    "guidance",
    "score_width",
    "blocks",
    "score_batch",
    "score_steps",
    "solver_steps",
    "layer_norm",
    "cosine_decay",
    "waves",
)
SETTINGS = ("discount", "learning_rate")


def run(config: TrainConfig | EvaluateConfig | ReportConfig) -> None:
    match config:
        case TrainConfig():
            train(config)
        case EvaluateConfig():
            evaluate(config)
        case ReportConfig():
            report(config.run, config.out or config.run / directory.REPORT)


def train(config: TrainConfig) -> None:
    dataset = read(config.data, config.columns)
    plan = plan_of(
        config.algorithm,
        dataset,
        list(config.cost_limit),
        horizon=config.horizon,
        alphas=list(config.alpha),
        seeds=config.seeds,
        holdout=config.holdout,
        chunk=config.chunk,
        mode=config.population,
        preset=config.preset,
        keep=config.keep,
        options={name: value for name in OPTIONS if (value := getattr(config, name)) is not None},
        settings={name: value for name in SETTINGS if (value := getattr(config, name)) is not None},
    )
    for limit in dict.fromkeys(str(member.limit) for member in plan.members):
        print(f"cost limit: {limit}")
    total = plan.config.steps * len(plan.members)
    with _resumable(config.out), terminal.progress(total, "updates") as advance:

        def progress(step: int, rows: list[dict[str, Any]], fresh: int) -> None:
            costs = [row["estimated_cost"] for row in rows if "estimated_cost" in row]
            told = f", cost estimates {min(costs):.3g} to {max(costs):.3g}" if costs else ""
            if plan.config.needs_model and not rows:
                told = ", fitting a model of one step"
            advance(f"step {step:,}{told}", fresh * len(plan.members))

        outcome = directory.train(config.out, plan, dataset, config.data, progress)
    for index, reason in outcome.failures.items():
        print(f"{plan.members[index]} {reason}; it keeps the policy it had before")
    print("estimating from the held-out episodes what each policy returns and costs")
    with _resumable(config.out):
        show_estimates(assess.assess(config.out, split(dataset, plan.holdout)[1]))
        report(config.out, config.out / directory.REPORT)


def evaluate(config: EvaluateConfig) -> None:
    from corsdice.envs.simulate import simulate_each

    for option, least in (("episodes", 2), ("seed", 0), ("workers", 1)):
        if (given := getattr(config, option)) < least:
            raise UserError(f"--{option} must be at least {least}, got {given}")
    content = directory.description(config.run)
    low, high = content["data"]["lowest_return"], content["data"]["highest_return"]
    policies = directory.load_policies(config.run)
    truths = simulate_each(policies, config.env, config.episodes, config.seed, content["discount"], config.workers)
    results = []
    for member, truth in zip(content["members"], truths, strict=True):
        normalised = {
            "normalised_return": (truth["return"] - low) / max(high - low, 1e-12),
            "normalised_cost": truth["cost"] / member["cost_limit"] if member["cost_limit"] else None,
        }
        results.append({"member": member["name"], "env": config.env} | truth | normalised)
    write_json(config.run / directory.EVALUATION, {"results": results})
    if config.json:
        print(json.dumps(results, indent=2))
        return
    terminal.print_table(
        f"{config.env}, {config.episodes} episodes; normalised by the returns in the logs and by the limit",
        ("policy", "return", "±", "cost", "±", "norm. return", "norm. cost"),
        [
            (
                result["member"],
                f"{result['return']:.2f}",
                f"{result['return_se']:.2f}",
                f"{result['cost']:.2f}",
                f"{result['cost_se']:.2f}",
                f"{result['normalised_return']:.3f}",
                "-" if result["normalised_cost"] is None else f"{result['normalised_cost']:.3f}",
            )
            for result in results
        ],
    )


def report(run: Path, target: Path) -> None:
    from corsdice.report import html

    html.write(run_report(run), target)
    print(f"Wrote {target}")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Ctrl-C loses at most the chunk that was under way, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        if not (out / directory.CHECKPOINT).exists():
            raise
        raise directory.Stopped(f"stopped; what was learned is in {out}: run the same command again to go on") from None
