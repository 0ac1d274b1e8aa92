"""A run: the plan, checked; the logs, split; the population, trained chunk by chunk."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import algorithms
from corsdice.algorithms import Config, Hypers, family
from corsdice.algorithms.logs import Units, logs_of, raw_units, units_of
from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset
from corsdice.data.split import split
from corsdice.errors import UserError
from corsdice.ope.frontier import Frontier
from corsdice.policy import Policy, PolicyParams
from corsdice.policy_family import PolicyFamily
from corsdice.training.population import (
    Member,
    Mode,
    hypers_of,
    initial_states,
    keys_of,
    members_of,
    resolve,
    run_chunk,
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run is to do; two runs with equal plans and equal data end bit-identical."""

    algorithm: str
    config: Config
    settings: dict[str, Any]
    """Hyper-parameters that all members share, but for those that a member has of its own."""
    members: tuple[Member, ...]
    horizon: int
    holdout: float
    """Share of the episodes that nothing is trained on."""
    chunk: int
    mode: Mode
    keep: int = 1
    """Of how many evenly spaced steps the policies stay; the last is one of them."""

    @property
    def discount(self) -> float:
        return _discount(self.settings)


class Outcome(NamedTuple):
    """Where a run stands."""

    plan: Plan
    step: int
    states: Any
    """[members, ...]"""
    failures: dict[int, str]
    """By member: when it stopped and why."""
    units: Units
    hypers: Hypers
    """[members]"""
    data: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.step >= self.plan.config.steps or len(self.failures) == len(self.plan.members)

    @property
    def actions(self) -> int:
        return int(np.prod(self.data["action_shape"], dtype=int))

    def state(self, index: int) -> Any:
        """What one member has learned."""
        return jax.tree.map(lambda leaf: np.asarray(leaf[index]), self.states)

    def policy(self, index: int) -> Policy:
        """The policy of one member that was trained for a limit."""
        member = self.plan.members[index]
        params = jax.tree.map(lambda leaf: np.asarray(leaf[index]), self.states.params["actor"])
        about = self.about(index) | ({} if member.limit is None else {"cost_limit": member.limit.episode})
        return Policy(self.plan.config.actor(self.actions), PolicyParams(params, self.units), about)

    def family(self) -> PolicyFamily:
        """All that was learned, for any limit; its frontier is still to be traced."""
        plan, config = self.plan, self.plan.config
        assert isinstance(config, family.Config)
        module = algorithms.by_name(plan.algorithm).module
        networks = [
            jax.tree.map(np.asarray, module.networks(self.state(index), member.alpha))
            for index, member in enumerate(plan.members)
        ]
        abouts = tuple(map(self.about, range(len(plan.members))))
        return PolicyFamily(config.ways(self.actions), tuple(networks), self.units, Frontier(()), abouts)

    def about(self, index: int) -> dict[str, Any]:
        """Where a policy of this member comes from."""
        member = self.plan.members[index]
        return {
            "algorithm": self.plan.algorithm,
            "member": index,
            "seed": member.seed,
            "alpha": member.alpha,
            "horizon": self.plan.horizon,
            "discount": self.plan.discount,
            "step": self.step,
            "observation_shape": self.data["observation_shape"],
            "action_shape": self.data["action_shape"],
            "data_sha256": self.data["sha256"],
        } | ({"settings": dict(member.settings)} if member.settings else {})


def plan_of(
    algorithm: str,
    dataset: Dataset,
    limits: list[float],
    *,
    horizon: int | None = None,
    alphas: list[float] | None = None,
    seeds: int = 1,
    holdout: float = 0.2,
    chunk: int = 1000,
    mode: Mode = "auto",
    preset: str = "default",
    keep: int = 1,
    options: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> Plan:
    """A plan from what a person says, checked; limits are undiscounted sums over an episode.

    A family is trained for no limit. The paper's preset of CORSDICE is Algorithm 1, whose λ moves.
    """
    if preset not in ("default", "paper"):
        raise UserError(f"unknown preset {preset!r}: choose default or paper")
    if preset == "paper" and algorithm == "corsdice":
        algorithm = "corsdice-paper"
    chosen = algorithms.by_name(algorithm)
    preset_options, preset_settings = algorithms.paper_settings(chosen) if preset == "paper" else ({}, {})
    config = chosen.config(**(preset_options | (options or {})))
    settings = preset_settings | (settings or {})
    horizon = horizon or horizon_of(dataset)
    discount = _discount(settings)
    if not (limits or chosen.is_family):
        raise UserError(
            f"{algorithm} is trained for one limit: --cost-limit C, the undiscounted cost an episode may have"
        )
    alphas = alphas or list(chosen.alphas)
    if min(alphas) <= 0 or seeds < 1 or config.steps < 1 or chunk < 1:
        raise UserError("alpha, seeds, steps and chunk must be positive")
    if chosen.is_family and keep > 1:
        raise UserError(
            f"--keep is of algorithms that are trained for a limit; {algorithm} keeps every policy it learns"
        )
    if not 1 <= keep <= config.steps:
        raise UserError(f"--keep must be between 1 and the {config.steps} steps of the run, got {keep}")
    cost_limits = [CostLimit.episodic(limit, horizon=horizon, discount=discount) for limit in limits]
    members = tuple(members_of(seeds, alphas, [None] if chosen.is_family else cost_limits))
    if len({member.name for member in members}) < len(members) or len({f"{each:.6g}" for each in limits}) < len(limits):
        raise UserError("cost limits and alphas must differ from each other in their first six digits")
    if getattr(config, "safe_only", False):
        train = split(dataset, holdout).train
        for limit in limits:
            if not (train.episodes.sums(train.costs) <= limit).any():
                raise UserError(f"{algorithm} has nothing to clone: no logged episode costs {limit:g} or less")
    chunk = min(chunk, config.steps // keep)
    return Plan(algorithm, config, settings, members, horizon, holdout, chunk, resolve(mode, config), keep)


def _discount(settings: dict[str, Any]) -> float:
    discount: Any = settings.get("discount", Hypers._field_defaults["discount"])
    return float(discount)


def plan_from(content: dict[str, Any]) -> Plan:
    """The plan that a run's description tells."""
    config = {name: tuple(value) if isinstance(value, list) else value for name, value in content["config"].items()}
    horizon, discount = content["horizon"], content["discount"]

    def member(told: dict[str, Any]) -> Member:
        stated = told.get("cost_limit")
        limit = None if stated is None else CostLimit.episodic(stated, horizon=horizon, discount=discount)
        return Member(told["seed"], told["alpha"], limit, tuple(told.get("settings", {}).items()))

    members = tuple(map(member, content["members"]))
    return Plan(
        content["algorithm"],
        algorithms.by_name(content["algorithm"]).config(**config),
        content["settings"],
        members,
        horizon,
        content["holdout"],
        content["chunk"],
        content["mode"],
        content["keep"],
    )


def blank_outcome(plan: Plan, like: Dataset, data: dict[str, Any]) -> Outcome:
    """The shapes of a run's outcome, on any dataset with the run's observations and actions."""
    units = raw_units(like)
    hypers = hypers_of(plan.members, like, plan.settings)
    logs = logs_of(like, units)
    states = jax.eval_shape(
        lambda: initial_states(plan.algorithm, plan.config, plan.mode, hypers, logs, keys_of(plan.members))
    )
    return Outcome(plan, 0, states, {}, units, hypers, data)


def horizon_of(dataset: Dataset) -> int:
    """The steps an episode may last, where the logs say so.

    All that timed out are equally long, or, where none did, all that there are.
    """
    episodes = dataset.episodes
    cut = dataset.timeouts[episodes.stops - 1]
    lengths = np.unique(episodes.lengths[cut] if cut.any() else episodes.lengths)
    if len(lengths) != 1:
        what = "timeouts come" if cut.any() else "no episode timed out, and they end"
        told = f"{what} after {lengths[0]} to {lengths[-1]} steps"
        raise UserError(f"the data do not tell the horizon ({told}): give --horizon, the steps an episode may last")
    return int(lengths[0])


def units_for(train: Dataset, plan: Plan) -> Units:
    return units_of(train, plan.discount) if plan.config.standardise else raw_units(train)


def fingerprint(dataset: Dataset) -> str:
    """A hash of the content, whatever file it came from."""
    digest = hashlib.sha256()
    for name, column in zip(Dataset._fields, dataset, strict=True):
        digest.update(f"{name}{column.shape}{column.dtype}".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def describe(dataset: Dataset, source: str) -> dict[str, Any]:
    returns = dataset.episodes.sums(dataset.rewards)
    return {
        "source": source,
        "sha256": fingerprint(dataset),
        "transitions": dataset.transitions,
        "episodes": len(returns),
        "observation_shape": list(dataset.observations.shape[1:]),
        "action_shape": list(dataset.actions.shape[1:]),
        "lowest_return": float(returns.min()),
        "highest_return": float(returns.max()),
    }


class Trainer:
    """Trains a plan chunk by chunk; `outcome` is where it stands after the last whole one."""

    def __init__(self, plan: Plan, dataset: Dataset, source: str = "memory") -> None:
        self.plan = plan
        self.split = split(dataset, plan.holdout)
        config = plan.config
        self.units = units_for(self.split.train, plan)
        self.logs = logs_of(self.split.train, self.units)
        self.hypers = hypers_of(plan.members, self.split.train, plan.settings)
        self.keys = keys_of(plan.members)
        self.data = describe(dataset, source)
        states = initial_states(plan.algorithm, config, plan.mode, self.hypers, self.logs, self.keys)
        self.outcome = Outcome(plan, 0, states, {}, self.units, self.hypers, self.data)

    def advance(self) -> list[dict[str, Any]]:
        """One chunk; returns its metrics, one row for each member that is still going."""
        plan, before = self.plan, self._begun()
        length = min(plan.chunk, plan.config.steps - before.step)
        going = np.array([index for index in range(len(plan.members)) if index not in before.failures])
        hypers, states, keys = self.hypers, before.states, self.keys
        if before.failures:
            hypers, states, keys = jax.tree.map(lambda leaf: leaf[going], (hypers, states, keys))
        chunk = run_chunk(
            plan.algorithm,
            plan.config,
            plan.mode,
            length,
            hypers,
            self.logs,
            states,
            jnp.int32(before.step),
            keys,
        )
        failed_at, failures, metrics = jax.device_get((chunk.failed_at, chunk.failures, chunk.metrics))
        stopped = dict(before.failures)
        for place in np.flatnonzero(failed_at < length):
            names = ", ".join(name for name, wrong in failures.items() if wrong[place])
            stopped[int(going[place])] = f"stopped at step {before.step + int(failed_at[place])}: {names} not finite"
        # A member that failed keeps the state from before the chunk in which it did.
        well = np.flatnonzero(failed_at >= length)
        states = chunk.states
        if stopped:
            states = jax.tree.map(lambda old, new: old.at[going[well]].set(new[well]), before.states, states)
        step = before.step + length
        self.outcome = before._replace(step=step, states=states, failures=stopped)
        return [
            {"step": step, "member": int(going[place])}
            | {name: float(values[place]) for name, values in metrics.items()}
            for place in well
        ]

    def _begun(self) -> Outcome:
        """Where the run stands; at its start with what all members share, which a checkpoint has in its states."""
        plan, outcome = self.plan, self.outcome
        if outcome.step > 0 or (behaviour := plan.config.fit_behaviour(self.logs)) is None:
            return outcome
        logs = self.logs._replace(behaviour=behaviour)
        states = initial_states(plan.algorithm, plan.config, plan.mode, self.hypers, logs, self.keys)
        return outcome._replace(states=states)

    def stop(self, reasons: dict[int, str]) -> None:
        """Ends members, by index, as if they had failed: they keep the state that they have, and cost no more time."""
        self.outcome = self.outcome._replace(failures=self.outcome.failures | reasons)
