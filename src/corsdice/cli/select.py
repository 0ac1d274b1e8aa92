"""`corsdice select`: which policy to take, by logs alone; of runs that were trained for a limit, by estimating each."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corsdice.algorithms import by_name
from corsdice.cli import select_family
from corsdice.cli.ope import read
from corsdice.cli.select_config import NOTHING_SAFE, SelectConfig
from corsdice.data import Dataset
from corsdice.data.split import split
from corsdice.errors import UserError
from corsdice.experiments.selection import Record, beside_oracle, ranked
from corsdice.files import output_directory
from corsdice.report import terminal
from corsdice.training import candidates, directory
from corsdice.training.candidates import Candidate, Inquiry
from corsdice.training.run import fingerprint


def run(config: SelectConfig) -> int:
    if not config.runs:
        raise UserError("select needs at least one directory of a run: corsdice select RUN --cost-limit C")
    runs = {path: directory.description(path) for path in config.runs}
    families = [path for path, content in runs.items() if by_name(content["algorithm"]).is_family]
    if not families:
        return among_kept(config, runs)
    if others := [path for path in runs if path not in families]:
        raise UserError(
            f"{families[0]} serves every limit and {others[0]} was trained for its own: choose among one kind at a time"
        )
    return select_family.run(config, runs)


def among_kept(config: SelectConfig, runs: dict[Path, dict[str, Any]]) -> int:
    """The choice among all policies that runs have kept, each of them estimated."""
    if config.limit_on != "mean":
        raise UserError(f"--limit-on {config.limit_on} chooses from a frontier, and these runs have none: leave it out")
    if config.data is None:
        raise UserError("--data is needed: the logs that the runs were trained on, or fresh ones")
    every = [candidate for path in runs for candidate in candidates.candidates_of(path)]
    limits = limits_to_choose_for(config, every)
    if config.out is not None:
        output_directory(config.out.parent)
    chosen_from = [candidate for candidate in every if candidate.cost_limit in limits]
    inquiries = {"estimate": candidates.estimates(*evidence_for(config, config.data, runs))}
    if config.env is not None:
        inquiries["simulate"] = candidates.truths(config.env, config.episodes, config.seed, config.workers)
    try:
        answers = [ask(inquiry, verb, chosen_from) for verb, inquiry in inquiries.items()]
    except KeyboardInterrupt:
        raise directory.Stopped("stopped; what was found is kept: run the same command again to go on") from None
    records: list[Record] = [candidate.about for candidate in chosen_from]
    for answer in answers:
        records = [record | known for record, known in zip(records, answer, strict=True)]
    choices = [choice([record for record in records if record["cost_limit"] == limit]) for limit in limits]
    if config.json:
        print(json.dumps(choices, indent=2))
    else:
        for each in choices:
            show(each)
    if config.out is not None:
        save(chosen_from[records.index(choices[0]["chosen"])], choices[0], config.out)
    return 0 if all(each["chosen"]["verdict"] == "meets" for each in choices) else NOTHING_SAFE


def limits_to_choose_for(config: SelectConfig, every: Sequence[Candidate]) -> list[float]:
    limits = sorted({candidate.cost_limit for candidate in every})
    told = ", ".join(f"{limit:g}" for limit in limits)
    if config.cost_limit is not None:
        if config.cost_limit not in limits:
            raise UserError(f"no run was trained for --cost-limit {config.cost_limit:g}: choose from {told}")
        return [config.cost_limit]
    if any({each.cost_limit for each in every if each.run == path} != set(limits) for path in config.runs):
        raise UserError(f"the runs were trained for different cost limits ({told}): name one with --cost-limit")
    if config.out is not None and len(limits) > 1:
        raise UserError(f"--out takes one policy and the runs have several limits ({told}): name one with --cost-limit")
    return limits


def evidence_for(config: SelectConfig, source: str, runs: dict[Path, dict[str, Any]]) -> tuple[Dataset, Dataset]:
    """Episodes that no run was trained on and that tell of all of them, and those that models may learn from."""
    dataset = read(source, config.columns)
    sha256 = fingerprint(dataset)
    for path, content in runs.items():
        about = content["data"]
        own = about["sha256"] == sha256
        if config.fresh and own:
            raise UserError(f"{path} was trained on {source}: leave --fresh out")
        if not config.fresh and not own:
            raise UserError(
                f"{path} was trained on other logs ({about['source']}) than {source}: give those with --data, or "
                "say --fresh if no run was trained on these"
            )
        for name, shape in (("observation", dataset.observations.shape[1:]), ("action", dataset.actions.shape[1:])):
            if tuple(about[f"{name}_shape"]) != shape:
                raise UserError(f"{path} has {name}s of shape {tuple(about[f'{name}_shape'])}, {source} {shape}")
    select_family.agree(runs, *(("horizon",) if config.fresh else ("horizon", "holdout")))
    if config.fresh:
        return dataset, dataset
    parts = split(dataset, next(iter(runs.values()))["holdout"])
    return parts.held_out, parts.train


def ask(inquiry: Inquiry, verb: str, chosen_from: Sequence[Candidate]) -> list[dict[str, Any]]:
    waiting = candidates.missing(inquiry, chosen_from)
    print(f"{len(waiting)} of {len(chosen_from)} policies to {verb}, the others are known", file=sys.stderr)
    with terminal.progress(len(waiting), "policies") as advance:
        for candidate in waiting:
            candidates.found(inquiry, candidate)
            advance(f"{verb} {candidate.path.name}")
    return [candidates.found(inquiry, candidate) for candidate in chosen_from]


def choice(records: Sequence[Record]) -> dict[str, Any]:
    """For one limit: the candidates from the first to the last to be taken, the first, why, and what it was worth."""
    order = ranked(records)
    chosen = order[0]
    meeting = sum(record["verdict"] == "meets" for record in records)
    if meeting:
        why = f"{chosen['words']}; the largest estimated return of {meeting} that do"
    else:
        why = f"none is known to meet the limit: the one that may exceed it least ({chosen['reason']})"
    worth = beside_oracle(chosen, records) if "return" in chosen else None
    return {
        "cost_limit": chosen["cost_limit"],
        "chosen": chosen,
        "why": why,
        "beside_oracle": worth,
        "candidates": order,
    }


def show(choice: dict[str, Any]) -> None:
    worth = choice["beside_oracle"]
    terminal.print_table(
        f"Limit {choice['cost_limit']:g}: sums over an episode, ± half a 95 % interval"
        + (", and simulated" if worth else ""),
        ("run", "α", "seed", "step", "return", "cost", "limit", *(("true return, cost",) if worth else ())),
        [
            (
                f"{'→' if record is choice['chosen'] else ' '} {record['run']}",
                f"{record['alpha']:g}",
                str(record["seed"]),
                f"{record['step']:,}",
                *(select_family.estimate(record, quantity) for quantity in ("return", "cost")),
                record["verdict"],
                *((f"{record['return']:.1f}, {record['cost']:.1f}",) if worth else ()),
            )
            for record in choice["candidates"]
        ],
    )
    chosen = choice["chosen"]
    print(
        f"limit {choice['cost_limit']:g}: {chosen['run']} {chosen['member']}, step {chosen['step']:,}: {choice['why']}"
    )
    if worth:
        print(f"simulated: {in_words(chosen, worth)}")


def in_words(chosen: Record, worth: Record) -> str:
    told = f"the choice is {'safe' if worth['safe'] else 'NOT safe'}, cost {chosen['cost']:.1f}"
    oracle = worth["oracle"]
    if worth["regret"] is None:
        return f"{told}; no candidate is safe, the least cost is {oracle['cost']:.1f}"
    share = "" if worth["regret_percent"] is None else f" ({worth['regret_percent']:.1f} %)"
    return (
        f"{told}; regret {worth['regret']:.1f}{share} against {oracle['run']} {oracle['member']}, "
        f"step {oracle['step']:,}, of return {oracle['return']:.1f}"
    )


def save(candidate: Candidate, choice: dict[str, Any], out: Path) -> None:
    """The policy, with what was estimated of it."""
    known = ("estimated_return", "estimated_cost", "estimated_cost_low", "estimated_cost_high", "verdict")
    about = candidate.policy.about | {"estimate": {name: choice["chosen"][name] for name in known}}
    select_family.write(replace(candidate.policy, about=about), out)
