"""`corsdice ope`: what policies would return and cost, from logs alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corsdice import data
from corsdice.cli.learn_configs import OpeConfig
from corsdice.costs import CostLimit, LimitOn
from corsdice.data import Columns, Dataset
from corsdice.errors import UserError
from corsdice.files import write_json
from corsdice.imports import import_named
from corsdice.report import terminal

if TYPE_CHECKING:
    from corsdice.training.run import Outcome
    from corsdice.training.ship import Shipped


def run(config: OpeConfig) -> None:
    others = [name for name in config.estimators if name != "models"]
    if (Path(config.policy) / "run.json").exists():
        results = _of_run(config, Path(config.policy), others)
    else:
        results = [_of_policy(config, others)]
    if config.json:
        print(json.dumps(results, indent=2))
    else:
        show_estimates(results)


def _of_run(config: OpeConfig, run: Path, others: Sequence[str]) -> list[dict[str, Any]]:
    """On what the run has held out, with models of what it was trained on; on other logs, by these alone."""
    from corsdice.data.split import split
    from corsdice.training import assess, directory
    from corsdice.training.run import fingerprint
    from corsdice.training.ship import models_of

    content = directory.description(run)
    source = config.data or content["data"]["source"]
    evidence, models = read(source), None
    if config.data is None and fingerprint(evidence) != content["data"]["sha256"]:
        raise UserError(f"{source} has changed since the run: give the logs to estimate from with --data")
    outcome = directory.load_outcome(run, evidence)
    policies = _shipped(run, outcome, config.cost_limit, config.limit_on)
    if config.data is None:
        parts = split(evidence, outcome.plan.holdout)
        evidence = parts.judge
        models = models_of(outcome, parts)
    assessor = assess.assessor_of(outcome, evidence, models, others)
    with terminal.progress(len(policies), "policies") as advance:
        results = assess.assess(outcome, policies, assessor, advance)
    if config.data is None:
        _keep(run / directory.ESTIMATES, results)
    return results


def _shipped(run: Path, outcome: Outcome, cost_limit: float | None, limit_on: LimitOn | None) -> list[Shipped]:
    """The policies of a run; of a family those of its limits, or the one that a limit chooses from its frontier."""
    from corsdice.algorithms import by_name
    from corsdice.training import directory
    from corsdice.training.ship import Shipped, shipped

    plan = outcome.plan
    if limit_on is not None and cost_limit is None:
        raise UserError("--limit-on says what --cost-limit is put on: give both")
    if not by_name(plan.algorithm).is_family:
        if cost_limit is not None:
            raise UserError(f"{run} was trained for limits of its own: leave --cost-limit out")
        return shipped(outcome, [])
    if cost_limit is None:
        policies = directory.load_policies(run)
        if not policies:
            raise UserError(f"{run} serves every limit and was given none: name one with --cost-limit")
    else:
        chosen = directory.read_family(run).at(cost_limit=cost_limit, limit_on=limit_on or "mean")
        policies = {f"limit{cost_limit:.6g}": chosen}
    return [
        Shipped(
            name,
            policy,
            CostLimit.episodic(policy.about["cost_limit"], horizon=plan.horizon, discount=plan.discount),
        )
        for name, policy in policies.items()
    ]


def _keep(path: Path, results: list[dict[str, Any]]) -> None:
    """In the run's file, beside what it says of other policies."""
    asked = {result["member"] for result in results}
    known = json.loads(path.read_text())["results"] if path.exists() else []
    write_json(path, {"results": results + [result for result in known if result["member"] not in asked]})


def _of_policy(config: OpeConfig, others: Sequence[str]) -> dict[str, Any]:
    """Of a saved policy, of the one that a limit chooses from a saved family, or of module:function."""
    from corsdice import ope
    from corsdice.algorithms.logs import units_of
    from corsdice.policy import Policy, stem_of
    from corsdice.policy_family import PolicyFamily, load
    from corsdice.training.assess import Assessor, Function
    from corsdice.training.run import horizon_of

    is_function = ":" in config.policy
    stem = stem_of(config.policy)
    if not is_function and not stem.with_name(f"{stem.name}.json").is_file():
        raise UserError(
            f"{config.policy} is not a run, nor a saved policy (.json and .safetensors), nor module:function"
        )
    saved = None if is_function else load(config.policy)
    if config.data is None:
        raise UserError("--data is needed: logs to estimate from, which the policy was not trained on")
    dataset = read(config.data)
    stated = config.cost_limit
    if stated is None and isinstance(saved, Policy):
        stated = saved.about.get("cost_limit")
    if stated is None:
        raise UserError("--cost-limit is needed: the undiscounted cost that an episode may have")
    chosen_by: LimitOn = saved.about.get("limit_on", "mean") if isinstance(saved, Policy) else "mean"
    limit_on = config.limit_on or chosen_by
    if isinstance(saved, PolicyFamily) and not saved.frontier.points:
        raise UserError(f"{config.policy} has no frontier yet: run the same `corsdice train` again to go on")
    policy = saved.at(cost_limit=stated, limit_on=limit_on) if isinstance(saved, PolicyFamily) else saved
    horizon = config.horizon or horizon_of(dataset)
    limit = CostLimit.episodic(float(stated), horizon=horizon, discount=config.discount)
    units = policy.params.units if policy else units_of(dataset, config.discount)
    assessor = Assessor(ope.evidence_of(dataset, units, horizon, config.discount), others=others)
    asked = policy or Function(import_named(config.policy), dataset.observations.shape[1:])
    name = stem.name if policy else config.policy
    return {"member": name} | assessor.record(asked, limit, limit_on) | {"pi_w_cost": None, "naive_cost": None}


def read(source: str, columns: Columns | None = None) -> Dataset:
    return data.check(data.read(source, columns or Columns()))


def _interval(values: dict[str, float]) -> str:
    return f"{values['value']:.1f} ± {(values['high'] - values['low']) / 2:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def show_estimates(results: list[dict[str, Any]]) -> None:
    terminal.print_table(
        "Estimated from logs: sums over an episode, ± half a 95 % interval",
        ("policy", "return", "cost", "over the limit", "dearest tenth", "strange", "π_w's cost", "naive", "limit"),
        [
            (
                result["member"],
                _interval(result["return"]),
                _interval(result["cost"]),
                f"{result['share_over']['value']:.0%}",
                _interval(result["cvar"]),
                f"{result['strange']:.0%}",
                _number(result["pi_w_cost"]),
                _number(result["naive_cost"]),
                result["verdict"],
            )
            for result in results
        ],
    )
    if any(result["second_opinions"] for result in results):
        terminal.print_table(
            "Second opinions: discounted sums of the process without its time limit",
            ("policy", "estimator", "return", "cost"),
            [
                (result["member"], name, _interval(values["return"]), _interval(values["cost"]))
                for result in results
                for name, values in result["second_opinions"].items()
            ],
        )
    for result in results:
        print(f"{result['member']} {result['words']}")
