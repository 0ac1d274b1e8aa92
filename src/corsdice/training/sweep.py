"""A search for hyper-parameters: drawn at random, trained as populations, ranked by estimates from logs alone.

A trial is a member of a population; that of a family is worth what the policy is that the limit chooses from it.

    journal.log             what was asked for, and every trial (Optuna's)
    runs/batch-000/ …       ordinary runs, one for each population
    trials.csv              one line for each trial
    summary.json            the same, best first
    best.safetensors, .json the policy to take

Draws depend on the seed alone and a run resumes bit-identical, so a search that was stopped ends as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from corsdice import files
from corsdice.algorithms import by_name
from corsdice.data.dataset import Dataset
from corsdice.data.split import split
from corsdice.errors import UserError
from corsdice.ope import preference
from corsdice.policy import load
from corsdice.training import directory
from corsdice.training.assess import Assessor, assess, assessor_of
from corsdice.training.journal import Journal
from corsdice.training.population import Member
from corsdice.training.run import Outcome, Plan, fingerprint, plan_of
from corsdice.training.ship import Models, Shipped, by_member, models_of, shipped, traced
from corsdice.training.space import parse_space, split_draw

RUNGS = (0.25, 0.5)
"""Shares of the updates after which the worse half of a population is stopped."""
PRUNED = "pruned"
RUNS, TRIALS, SUMMARY, BEST = "runs", "trials.csv", "summary.json", "best"
NUMBERS = ("return", "return_low", "return_high", "cost", "cost_low", "cost_high")
MEETS, LARGEST = 2000.0, 710.0
Record = dict[str, Any]
"""A trial as people read it."""


def sweep(
    out: Path,
    dataset: Dataset,
    source: str,
    limit: float,
    *,
    algorithm: str = "corsdice",
    space: Iterable[str] = (),
    trials: int = 20,
    batch: int = 5,
    seed: int = 0,
    prune: bool = False,
    horizon: int | None = None,
    holdout: float = 0.2,
    chunk: int = 1000,
    options: dict[str, Any] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, updates, total: None,
) -> list[Record]:
    """Searches into a directory, from where it was left; the trials, best first.

    `progress` is told what goes on, how many updates are new, and how many there are in all.
    """
    if prune and by_name(algorithm).is_family:
        raise UserError(f"--prune is of algorithms that are trained for a limit; {algorithm} is judged by its frontier")
    distributions = parse_space(list(space), algorithm)
    draws = draw(distributions, seed, trials)
    batches = batches_of(draws, batch)

    def plan(numbers: list[int]) -> Plan:
        _, settings, static = split_draw(draws[numbers[0]])
        shared = plan_of(
            algorithm,
            dataset,
            [limit],
            horizon=horizon,
            holdout=holdout,
            chunk=chunk,
            options=(options or {}) | static,
            settings=settings,
        )
        cost_limit = shared.members[0].limit
        return replace(shared, members=tuple(_member(seed + n, draws[n], cost_limit) for n in numbers))

    plans = [plan(numbers) for numbers in batches]  # all of them first: a mistake is told before hours are spent
    files.output_directory(out)
    journal = Journal(out)
    asked = {
        **{"data": fingerprint(dataset), "cost_limit": limit, "algorithm": algorithm, "space": repr(distributions)},
        **{"trials": trials, "batch": batch, "seed": seed, "prune": prune, "horizon": horizon, "holdout": holdout},
        **{"chunk": chunk, "options": options or {}},
    }
    journal.begin(asked, distributions, draws)
    _train_all(out, plans, batches, dataset, source, limit, journal, prune, progress)
    return sorted(map(record, journal.trials()), key=lambda found: rank(found, limit), reverse=True)


def draw(space: dict[str, Any], seed: int, trials: int) -> list[dict[str, Any]]:
    """The values of each trial; more of them begin with the same."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
    return [study.ask(space).params for _ in range(trials)]


def batches_of(draws: list[dict[str, Any]], size: int) -> list[list[int]]:
    """Numbers of trials that one compiled program can train: alike in all that is not a member's own."""
    alike: dict[str, list[int]] = {}
    for number, drawn in enumerate(draws):
        alike.setdefault(repr(split_draw(drawn)[1:]), []).append(number)
    return sorted(numbers[i : i + size] for numbers in alike.values() for i in range(0, len(numbers), size))


def _member(seed: int, drawn: dict[str, Any], limit: Any) -> Member:
    own = split_draw(drawn)[0]
    return Member(seed, own.pop("alpha"), limit, tuple(sorted(own.items())))


def _train_all(
    out: Path,
    plans: list[Plan],
    batches: list[list[int]],
    dataset: Dataset,
    source: str,
    limit: float,
    journal: Journal,
    prune: bool,
    progress: Callable[[str, int, int], None],
) -> None:
    parts = split(dataset, plans[0].holdout)
    known: dict[tuple[float, bool], tuple[Models, Assessor]] = {}
    total = sum(plan.config.steps * len(plan.members) for plan in plans)

    def shared(outcome: Outcome) -> tuple[Models, Assessor]:
        """What estimates rest on is fitted once for all runs that have the same units."""
        key = (outcome.plan.discount, outcome.plan.config.standardise)
        if key not in known:
            models = models_of(outcome, parts)
            is_family = by_name(outcome.plan.algorithm).is_family  # its policies were chosen by the one part
            known[key] = models, assessor_of(outcome, parts.judge if is_family else parts.choose, models)
        return known[key]

    def policies(run: Path, outcome: Outcome) -> list[Shipped]:
        if not by_name(outcome.plan.algorithm).is_family:
            return shipped(outcome, [])
        family = traced(outcome, parts, shared(outcome)[0])
        family.save(run / directory.FAMILY)
        chosen = shipped(outcome, [limit], family, by_member(outcome.plan))
        directory.save_shipped(run, chosen)
        return chosen

    for index, (plan, numbers) in enumerate(zip(plans, batches, strict=True)):
        name, members = f"batch-{index:03d}", len(plan.members)
        if all(journal.trials()[number].state.is_finished() for number in numbers):
            progress(name, plan.config.steps * members, total)
            continue

        def told(step: int, rows: Any, fresh: int, name: str = name, members: int = members) -> None:
            progress(f"{name}, step {step:,}", fresh * members, total)

        run = out / RUNS / name
        outcome = directory.train(
            run, plan, dataset, source, told, halving(lambda now: shared(now)[1]) if prune else None
        )
        progress(f"{name}, estimating", 0, total)
        ships = policies(run, outcome)
        estimates = assess(outcome, ships, shared(outcome)[1])
        files.write_json(run / directory.ESTIMATES, {"results": estimates})
        by_place = {each.policy.about["member"]: found for each, found in zip(ships, estimates, strict=True)}
        for place, number in enumerate(numbers):
            failure = outcome.failures.get(place)
            about = {"run": f"{RUNS}/{name}", "member": plan.members[place].name}
            _end(journal, number, about, by_place.get(place), failure, outcome.step)


def halving(assessor: Callable[[Outcome], Assessor]) -> directory.Prune:
    """Successive halving: at each rung the worse half of those still going is stopped, by their estimates."""

    def prune(outcome: Outcome, before: int) -> dict[int, str]:
        plan = outcome.plan
        if not any(before < share * plan.config.steps <= outcome.step for share in RUNGS):
            return {}
        going = [each for each in shipped(outcome, []) if each.policy.about["member"] not in outcome.failures]
        if len(going) < 2:
            return {}
        judge = assessor(outcome)
        values = {each.policy.about["member"]: _value(judge.record(each.policy, each.limit)) for each in going}
        ranked = sorted(values, key=values.__getitem__, reverse=True)
        kept = math.ceil(len(going) / 2)
        return {
            index: f"{PRUNED} at step {outcome.step}: number {kept + place} of {len(going)} by its estimate"
            for place, index in enumerate(ranked[kept:], 1)
        }

    return prune


def value_of(verdict: str, returned: float, highest_cost: float, limit: float) -> float:
    """One number for Optuna in the order of `preference`: above 1,000 for what meets its limit, below for the rest.

    It is sign(x) ln(1 + |x|) of the return, plus 2,000, or of the excess cost, negative: a logarithm of any float is
    below 710, so the two never mix, and numbers that differ by 1e-11 of their size stay apart.
    """
    meets, by = preference(verdict, returned, highest_cost, limit)
    return math.copysign(min(math.log1p(abs(by)), LARGEST), by) + (MEETS if meets else 0.0)


def _value(estimate: dict[str, Any]) -> float:
    return value_of(estimate["verdict"], estimate["return"]["value"], estimate["cost"]["high"], estimate["cost_limit"])


def _end(
    journal: Journal, number: int, about: Record, estimate: dict[str, Any] | None, failure: str | None, step: int
) -> None:
    """What failed is known by its member alone."""
    if estimate is None or (failure and not failure.startswith(PRUNED)):
        journal.end(number, TrialState.FAIL, None, step, about | {"words": failure})
        return
    about |= {"member": estimate["member"], "words": failure or estimate["words"]}
    for quantity in ("return", "cost"):
        values = estimate[quantity]
        about |= {quantity: values["value"], f"{quantity}_low": values["low"], f"{quantity}_high": values["high"]}
    about["verdict"] = estimate["verdict"]
    state = TrialState.PRUNED if failure else TrialState.COMPLETE
    journal.end(number, state, _value(estimate), step, about)


def record(trial: FrozenTrial) -> Record:
    """None for the numbers of one that failed."""
    names = ("verdict", *NUMBERS, "run", "member", "words")
    known = {name: trial.user_attrs.get(name) for name in names}
    return {"trial": trial.number, "state": trial.state.name.lower(), **trial.params, **known}


def rank(found: Record, limit: float) -> tuple[Any, ...]:
    """The larger, the better: trained to the end, then pruned, then failed; among them by `preference`."""
    if found["verdict"] is None:
        return (False, False, False, -math.inf)
    by_estimate = preference(found["verdict"], found["return"], found["cost_high"], limit)
    return (found["state"] == "complete", True, *by_estimate)


def write_results(out: Path, ranked: list[Record], about: dict[str, Any]) -> dict[str, Any]:
    """trials.csv, summary.json and the best policy; returns the summary."""
    by_number = sorted(ranked, key=lambda found: found["trial"])
    files.write_csv(out / TRIALS, list(ranked[0]), (found.values() for found in by_number))
    best = ranked[0] if ranked[0]["state"] == "complete" else None
    summary = about | {"best": best, "trials": ranked}
    files.write_json(out / SUMMARY, summary)
    if best is None:
        raise UserError(f"no trial could be trained to its end: {out / TRIALS} says why")
    load(out / best["run"] / directory.POLICIES / best["member"]).save(out / BEST)
    return summary
