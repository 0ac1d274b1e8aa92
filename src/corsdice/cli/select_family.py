"""`corsdice select` of families: a limit chooses from the frontiers that runs have traced."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corsdice.cli.select_config import NOTHING_SAFE, SelectConfig
from corsdice.costs import LIMITED, CostLimit, LimitOn
from corsdice.errors import UserError
from corsdice.files import output_directory
from corsdice.ope.frontier import Frontier, FrontierPoint
from corsdice.policy import Policy
from corsdice.policy_family import PolicyFamily
from corsdice.report import terminal
from corsdice.training import directory
from corsdice.training.candidates import truth_of

Record = dict[str, Any]
"""A policy as people read it."""


@dataclass(frozen=True)
class Member:
    """One of the populations that a run has trained."""

    run: Path
    family: PolicyFamily
    index: int

    @property
    def points(self) -> list[FrontierPoint]:
        return [point for point in self.family.frontier.points if point.member == self.index]

    def policy(self, point: FrontierPoint, limit: float, limit_on: LimitOn) -> Policy:
        return self.family.policy(point._replace(member=self.index), limit, limit_on)


def run(config: SelectConfig, runs: dict[Path, dict[str, Any]]) -> int:
    limit, on = stated_limit(config, runs), config.limit_on
    members = [
        Member(path, family, index)
        for path in runs
        for family in [directory.read_family(path)]
        for index in range(len(family.networks))
    ]
    if config.out is not None:
        output_directory(config.out.parent)
    frontier = joined(members)
    best = {number: frontier.nearest(limit, [number], on) for number, member in enumerate(members) if member.points}
    records = {number: record(members[number], best[number], limit, on) for number in in_order(best, limit, on)}
    chosen, policy = None, None
    try:
        point = frontier.choose(limit, limit_on=on)
        chosen, policy = records[point.member], members[point.member].policy(point, limit, on)
        why = "the largest estimated return within the limit, even at the upper end of the cost's interval"
    except UserError as nothing:
        why = str(nothing)
    if policy and chosen and config.env is not None:
        chosen |= truth_of(policy, limit, config.env, config.episodes, config.seed, config.workers)
    asked = {"cost_limit": limit, "limit_on": on}
    choice = asked | {"chosen": chosen, "why": why, "candidates": list(records.values())}
    if config.json:
        print(json.dumps([choice], indent=2))
    else:
        show(choice)
    if policy and config.out is not None:
        write(policy, config.out)
    return 0 if policy else NOTHING_SAFE


def stated_limit(config: SelectConfig, runs: dict[Path, dict[str, Any]]) -> float:
    """The limit, where nothing else was said that a frontier has no use for."""
    if config.cost_limit is None:
        raise UserError("--cost-limit is needed: the undiscounted cost that an episode may have")
    if config.data is not None or config.fresh:
        raise UserError(
            "a frontier was traced from the run's own logs: leave --data and --fresh out; "
            "corsdice ope judges a chosen policy by others"
        )
    agree(runs, "horizon")
    if len({content["data"]["sha256"] for content in runs.values()}) > 1:
        raise UserError("the runs were trained on different logs: choose among those that share them")
    about = next(iter(runs.values()))
    return CostLimit.episodic(config.cost_limit, horizon=about["horizon"], discount=about["discount"]).episode


def agree(runs: dict[Path, dict[str, Any]], *names: str) -> None:
    """Refuses runs that differ in what their estimates rest on."""
    for name in names:
        if len(values := {content[name] for content in runs.values()}) > 1:
            told = ", ".join(f"{value:g}" for value in sorted(values))
            raise UserError(f"the runs differ in their {name} ({told}): choose among those that agree")


def joined(members: Sequence[Member]) -> Frontier:
    """One frontier of all members, whose numbers are their places here."""
    return Frontier(
        tuple(point._replace(member=number) for number, member in enumerate(members) for point in member.points)
    )


def record(member: Member, point: FrontierPoint, limit: float, limit_on: LimitOn) -> Record:
    about = member.family.abouts[member.index]
    return {
        "run": str(member.run),
        **{name: about[name] for name in ("algorithm", "alpha", "seed", "step")},
        **point.point._asdict(),
        **{
            f"estimated_{quantity}{suffix}": number
            for quantity, interval in (("return", point.returned), ("cost", point.cost), *point.risk._asdict().items())
            for suffix, number in (("", interval.value), ("_low", interval.low), ("_high", interval.high))
        },
        "strange": point.strange,
        "within": point.limited(limit_on).high <= limit,
    }


def in_order(best: dict[int, FrontierPoint], limit: float, limit_on: LimitOn) -> list[int]:
    """Those within the limit by their return, then the others by what they may cost."""

    def key(number: int) -> tuple[bool, float]:
        highest = best[number].limited(limit_on).high
        return (True, best[number].returned.value) if highest <= limit else (False, -highest)

    return sorted(best, key=key, reverse=True)


def show(choice: dict[str, Any]) -> None:
    chosen, limit = choice["chosen"], choice["cost_limit"]
    terminal.print_table(
        f"Limit {limit:g} on the {LIMITED[choice['limit_on']]}: the best of each member; sums over an episode, "
        "± half a 95 % interval",
        ("run", "way", "λ", "imitation", "seed", "α", "return", "cost", "dearest tenth"),
        [
            (
                f"{'→' if record is chosen else ' '} {record['run']}",
                record["way"],
                f"{record['multiplier']:.3g}",
                "-" if record["imitation"] is None else f"{record['imitation']:.2g}",
                str(record["seed"]),
                f"{record['alpha']:g}",
                *(estimate(record, quantity) for quantity in ("return", "cost", "cvar")),
            )
            for record in choice["candidates"]
        ],
    )
    if chosen is None:
        print(f"limit {limit:g}: {choice['why']}")
        return
    print(
        f"limit {limit:g}: {chosen['run']} {chosen['way']} at λ {chosen['multiplier']:.3g}, seed {chosen['seed']}, "
        f"α {chosen['alpha']:g}: {choice['why']}"
    )
    if "cost" in chosen:
        safe = "safe in the mean" if chosen["cost"] <= limit else "NOT safe in the mean"
        print(f"simulated: the choice is {safe}, cost {chosen['cost']:.1f}, return {chosen['return']:.1f}")


def estimate(record: Record, quantity: str) -> str:
    half = (record[f"estimated_{quantity}_high"] - record[f"estimated_{quantity}_low"]) / 2
    return f"{record[f'estimated_{quantity}']:.1f} ± {half:.1f}"


def write(policy: Policy, out: Path) -> None:
    written = policy.save(out)
    print(f"Wrote {written.with_suffix('.safetensors')} and {written}", file=sys.stderr)
