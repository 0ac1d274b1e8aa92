"""`corsdice ope`: what policies would return and cost, from logs alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corsdice import data
from corsdice.cli.learn_configs import OpeConfig
from corsdice.costs import CostLimit
from corsdice.data import Columns, Dataset
from corsdice.errors import UserError
from corsdice.imports import import_named
from corsdice.report import terminal


def run(config: OpeConfig) -> None:
    others = [name for name in config.estimators if name != "extraction"]
    if (Path(config.policy) / "run.json").exists():
        results = _of_run(config, Path(config.policy), others)
    else:
        results = [_of_policy(config, others)]
    if config.json:
        print(json.dumps(results, indent=2))
    else:
        show_estimates(results)


def _of_run(config: OpeConfig, path: Path, others: Sequence[str]) -> list[dict[str, Any]]:
    from corsdice.training import assess, directory
    from corsdice.training.run import fingerprint, split

    content = directory.description(path)
    total = len(content["members"])
    with terminal.progress(total, "policies") as advance:
        if config.data is not None:
            return assess.assess(path, read(config.data), others=others, save=False, progress=advance)
        source = content["data"]["source"]
        dataset = read(source)
        if fingerprint(dataset) != content["data"]["sha256"]:
            raise UserError(f"{source} has changed since the run: give the logs to estimate from with --data")
        return assess.assess(path, split(dataset, content["holdout"])[1], others=others, progress=advance)


def _of_policy(config: OpeConfig, others: Sequence[str]) -> dict[str, Any]:
    """Of a saved policy, or of module:function."""
    from corsdice import ope
    from corsdice.algorithms.logs import units_of
    from corsdice.policy import load
    from corsdice.training.assess import Assessor
    from corsdice.training.run import horizon_of

    function = import_named(config.policy) if ":" in config.policy else None
    if function is None and not Path(config.policy).with_suffix(".json").is_file():
        raise UserError(
            f"{config.policy} is not a run, nor a saved policy (.json and .safetensors), nor module:function"
        )
    policy = None if function else load(config.policy)
    if config.data is None:
        raise UserError("--data is needed: logs to estimate from, which the policy was not trained on")
    dataset = read(config.data)
    stated = config.cost_limit
    if stated is None and policy is not None:
        stated = policy.about.get("cost_limit")
    if stated is None:
        raise UserError("--cost-limit is needed: the undiscounted cost that an episode may have")
    horizon = config.horizon or horizon_of(dataset)
    limit = CostLimit.episodic(float(stated), horizon=horizon, discount=config.discount)
    units = policy.params.units if policy else units_of(dataset, config.discount)
    assessor = Assessor(ope.evidence_of(dataset, units, horizon, config.discount), others)
    if policy:
        question = assessor.ask(policy)
    else:
        assert function is not None
        question = assessor.ask_function(function, dataset.observations.shape[1:])
    name = config.policy if function else Path(config.policy).stem
    return {"member": name} | assessor.record(question, limit) | {"pi_w_cost": None, "naive_cost": None}


def read(source: str, columns: Columns | None = None) -> Dataset:
    return data.check(data.read(source, columns or Columns()))


def _interval(values: dict[str, float]) -> str:
    return f"{values['value']:.1f} ± {(values['high'] - values['low']) / 2:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def show_estimates(results: list[dict[str, Any]]) -> None:
    words = {"meets": "meets", "violates": "VIOLATES", "unknown": "unknown"}
    terminal.print_table(
        "Estimated from held-out logs: sums over an episode, ± half a 95 % interval",
        ("policy", "return", "cost", "π_w's cost", "naive", "limit"),
        [
            (
                result["member"],
                _interval(result["return"]),
                _interval(result["cost"]),
                _number(result["pi_w_cost"]),
                _number(result["naive_cost"]),
                words[result["verdict"]],
            )
            for result in results
        ],
    )
    if any(result["other_estimators"] for result in results):
        _show_others(results)
    terminal.print_table(
        "Diagnostics",
        ("policy", "mean weight", "effective share", "flow residual", "unlike the logs", "strange in the model"),
        [
            (
                result["member"],
                f"{result['mean_correction']:.3f}",
                f"{result['effective_share']:.0%}",
                f"{result['flow_residual']:.3f}",
                f"{result['outside']:.0%}",
                "-" if result["strange"] is None else f"{result['strange']:.0%}",
            )
            for result in results
        ],
    )
    for result in results:
        print(f"{result['member']} {result['words']}")


def _show_others(results: list[dict[str, Any]]) -> None:
    """Estimators that speak of the discounted process alone, beside extraction in that unit."""
    terminal.print_table(
        "Second opinions: discounted sums of the process without its time limit",
        ("policy", "estimator", "return", "cost"),
        [
            (result["member"], name, _interval(values["return"]), _interval(values["cost"]))
            for result in results
            for name, values in {"extraction": result["discounted"], **result["other_estimators"]}.items()
        ],
    )
