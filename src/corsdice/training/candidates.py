"""The policies among which one is chosen: all that runs for a limit have kept, and what is known of each.

Estimates and simulations take time, so what was found is kept in RUN/selection.json, with all that it depends on: a
second call is quick, and one that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corsdice import __version__, files, ope
from corsdice.costs import CostLimit
from corsdice.data.dataset import Dataset
from corsdice.data.dsrl import normalised_cost
from corsdice.envs.simulate import simulate
from corsdice.errors import UserError
from corsdice.policy import Policy, load
from corsdice.training import directory
from corsdice.training.assess import Assessor
from corsdice.training.run import fingerprint
from corsdice.training.ship import models_from

MEMORY = "selection.json"


class Candidate(NamedTuple):
    """A kept policy of a run."""

    run: Path
    path: Path
    policy: Policy

    @property
    def cost_limit(self) -> float:
        return float(self.policy.about["cost_limit"])

    @property
    def about(self) -> dict[str, Any]:
        known = {name: self.policy.about[name] for name in ("algorithm", "alpha", "seed", "step")}
        return {"run": str(self.run), "member": self.path.name} | known


class Inquiry(NamedTuple):
    """Something to be found out about each candidate."""

    name: str
    circumstances: dict[str, Any]
    """All that the answer depends on beside the policy, in JSON's types."""
    answer: Callable[[Candidate], dict[str, Any]]


def candidates_of(run: Path) -> list[Candidate]:
    found = directory.kept_policies(run)
    if not all(path.with_name(f"{path.name}.json").exists() for path in found):
        raise UserError(f"{run} has not ended its training: run the same `corsdice train` again to go on")
    return [Candidate(run, path, load(path)) for path in found]


def estimates(evidence: Dataset, learned_from: Dataset) -> Inquiry:
    """What models of some logs tell of policies that begin where others did, which no candidate was trained on.

    Candidates in equal units share all that can be shared.
    """
    assessors: dict[bytes, Assessor] = {}

    def answer(candidate: Candidate) -> dict[str, Any]:
        about, units = candidate.policy.about, candidate.policy.params.units
        limit = CostLimit.episodic(candidate.cost_limit, horizon=about["horizon"], discount=about["discount"])
        shared = b"".join(np.asarray(number).tobytes() for number in (*units, limit.horizon, limit.discount))
        if shared not in assessors:
            told_by = ope.evidence_of(evidence, units, limit.horizon, limit.discount)
            assessors[shared] = Assessor(told_by, models_from(learned_from, units, limit.horizon, limit.discount))
        assessor = assessors[shared]
        found = assessor.record(candidate.policy, limit)
        return {
            "cost_limit": limit.episode,
            **{
                f"estimated_{quantity}{suffix}": found[quantity][end]
                for quantity in ("return", "cost")
                for suffix, end in (("", "value"), ("_low", "low"), ("_high", "high"))
            },
            **{name: found[name] for name in ("verdict", "reason", "words")},
        }

    logs = {"logs": fingerprint(evidence), "learned_from": fingerprint(learned_from)}
    return Inquiry("estimate", logs | {"corsdice": __version__}, answer)


def truths(env: str, episodes: int, seed: int, workers: int) -> Inquiry:
    """What a simulator tells."""

    def answer(candidate: Candidate) -> dict[str, Any]:
        return truth_of(candidate.policy, candidate.cost_limit, env, episodes, seed, workers)

    return Inquiry("truth", {"env": env, "episodes": episodes, "seed": seed}, answer)


def truth_of(policy: Policy, cost_limit: float, env: str, episodes: int, seed: int, workers: int) -> dict[str, Any]:
    """What a policy returns and costs when it is simulated."""
    found = simulate(policy, env, episodes, seed, policy.about["discount"], workers)
    known = {name: found[name] for name in ("return", "return_se", "cost", "cost_se")}
    return known | {"normalised_cost": normalised_cost(found["cost"], cost_limit)}


def missing(inquiry: Inquiry, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that are still to be asked about."""
    return [candidate for candidate in candidates if _recalled(inquiry, candidate) is None]


def found(inquiry: Inquiry, candidate: Candidate) -> dict[str, Any]:
    """The answer, from memory where it is known."""
    known = _recalled(inquiry, candidate)
    if known is None:
        known = inquiry.answer(candidate)
        memory = _memory(candidate.run)
        entry = {"asked": _asked(inquiry, candidate), "found": known}
        memory.setdefault(inquiry.name, {})[_name(candidate)] = entry
        files.write_json(candidate.run / MEMORY, memory)
    return known


def _recalled(inquiry: Inquiry, candidate: Candidate) -> dict[str, Any] | None:
    entry = _memory(candidate.run).get(inquiry.name, {}).get(_name(candidate))
    return entry["found"] if entry and entry["asked"] == _asked(inquiry, candidate) else None


def _memory(run: Path) -> dict[str, Any]:
    path = run / MEMORY
    try:
        memory: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): delete it, and all in it is found again") from error
    return memory


def _name(candidate: Candidate) -> str:
    return candidate.path.relative_to(candidate.run / directory.POLICIES).as_posix()


def _asked(inquiry: Inquiry, candidate: Candidate) -> dict[str, Any]:
    numbers = candidate.path.with_name(f"{candidate.path.name}.safetensors").read_bytes()
    return inquiry.circumstances | {"policy": hashlib.sha256(numbers).hexdigest()}
