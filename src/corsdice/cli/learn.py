"""`corsdice train`, `ope`, `evaluate`, `report`: from a log file to a policy, what it would cost, and what to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from corsdice.algorithms import by_name
from corsdice.cli.learn_configs import EvaluateConfig, ReportConfig, TrainConfig
from corsdice.cli.ope import read, show_estimates
from corsdice.costs import CostLimit, LimitOn
from corsdice.data.split import Split, split
from corsdice.errors import UserError
from corsdice.files import write_json
from corsdice.ope.estimate import Interval
from corsdice.ope.frontier import Frontier
from corsdice.report import terminal
from corsdice.report.run import run_report
from corsdice.training import assess, directory
from corsdice.training.population import Member
from corsdice.training.run import Outcome, plan_of
from corsdice.training.ship import models_of, shipped, traced

SHOWN = 15
"""Rows of a frontier in the terminal."""

OPTIONS = (
    "steps",
    "widths",
    "batch_size",
    "divergence",
    "extraction_divergence",
    "estimate",
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
    family = by_name(plan.algorithm).is_family
    if config.limit_on != "mean" and not family:
        raise UserError(f"--limit-on chooses from a frontier, and {plan.algorithm} has none: leave it out")
    limits = [CostLimit.episodic(each, horizon=plan.horizon, discount=plan.discount) for each in config.cost_limit]
    for limit in limits:
        print(f"cost limit: {limit}")
    total = plan.config.steps * len(plan.members)
    with _resumable(config.out), terminal.progress(total, "updates") as advance:

        def progress(step: int, rows: list[dict[str, Any]], fresh: int) -> None:
            costs = [row["estimated_cost"] for row in rows if "estimated_cost" in row]
            told = f", cost estimates {min(costs):.3g} to {max(costs):.3g}" if costs else ""
            advance(f"step {step:,}{told}", fresh * len(plan.members))

        outcome = directory.train(config.out, plan, dataset, config.data, progress)
    for index, reason in outcome.failures.items():
        print(f"{plan.members[index]} {reason}; it keeps the policy it had before")
    with _resumable(config.out):
        finish(config.out, outcome, split(dataset, plan.holdout), list(config.cost_limit), config.limit_on)
    if family and not limits:
        print(f"for a policy: corsdice select {config.out} --cost-limit C --out policy")


def finish(out: Path, outcome: Outcome, parts: Split, limits: list[float], limit_on: LimitOn) -> None:
    """What follows training: the frontier of a family, the policies that limits choose, verdicts, the report."""
    models = models_of(outcome, parts)
    family = None
    if by_name(outcome.plan.algorithm).is_family:
        print("estimating from logs alone what every policy of the family returns and costs")
        family = traced(outcome, parts, models)
        family.save(out / directory.FAMILY)
        show_frontier(family.frontier, outcome.plan.members)
    policies = shipped(outcome, limits, family, limit_on=limit_on)
    if family is not None:
        directory.save_shipped(out, policies)
    if policies:
        print("judging them from first states that had no part in training or in the choice")
        results = assess.assess(outcome, policies, assess.assessor_of(outcome, parts.judge, models))
        write_json(out / directory.ESTIMATES, {"results": results})
        show_estimates(results)
    report(out, out / directory.REPORT)


def show_frontier(frontier: Frontier, members: Sequence[Member]) -> None:
    """The policies that no other beats, thinned to a screen."""
    best = frontier.efficient()
    shown = [best[round(i)] for i in np.linspace(0, len(best) - 1, min(SHOWN, len(best)))]
    terminal.print_table(
        f"The frontier: {len(best)} of {len(frontier.points)} policies are beaten by none; sums over an episode, "
        "± half a 95 % interval",
        ("cost", "return", "way to act", "λ", "α", "seed"),
        [
            (
                _interval(each.cost),
                _interval(each.returned),
                each.point.way + ("" if each.point.imitation is None else f", imitation {each.point.imitation:.2g}"),
                f"{each.point.multiplier:.3g}",
                f"{members[each.member].alpha:g}",
                str(members[each.member].seed),
            )
            for each in shown
        ],
    )


def _interval(values: Interval) -> str:
    return f"{values.value:.1f} ± {(values.high - values.low) / 2:.1f}"


def evaluate(config: EvaluateConfig) -> None:
    from corsdice.envs.simulate import simulate_each

    for option, least in (("episodes", 2), ("seed", 0), ("workers", 1)):
        if (given := getattr(config, option)) < least:
            raise UserError(f"--{option} must be at least {least}, got {given}")
    content = directory.description(config.run)
    low, high = content["data"]["lowest_return"], content["data"]["highest_return"]
    policies = directory.load_policies(config.run)
    if not policies:
        raise UserError(f"{config.run} has no policy yet: corsdice select {config.run} --cost-limit C chooses one")
    truths = simulate_each(
        list(policies.values()), config.env, config.episodes, config.seed, content["discount"], config.workers
    )
    results = []
    for (name, policy), truth in zip(policies.items(), truths, strict=True):
        limit = policy.about["cost_limit"]
        normalised = {
            "normalised_return": (truth["return"] - low) / max(high - low, 1e-12),
            "normalised_cost": truth["cost"] / limit if limit else None,
        }
        results.append({"member": name, "env": config.env} | truth | normalised)
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
