"""Which α is reported for a limit and a seed: every one, the one that logs alone would choose, the simulator's choice.

The paper reports the simulator's. Who has nothing but logs cannot choose so, and has the offline choice instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from corsdice.ope import preference

Record = dict[str, Any]
"""What is known of one policy; `failure` tells why it has no numbers."""


def ranked(policies: Sequence[Record]) -> list[Record]:
    """By the estimate from logs: those that meet the limit by their return, then the others by what they may cost."""

    def key(policy: Record) -> tuple[bool, float]:
        names = ("verdict", "estimated_return", "estimated_cost_high", "cost_limit")
        return preference(*(policy[name] for name in names))

    return sorted(policies, key=key, reverse=True)


def offline_choice(policies: Sequence[Record]) -> Record:
    """By the estimate from logs: of those that meet the limit the largest return, else the least that may be cost."""
    return ranked(policies)[0]


def oracle_choice(policies: Sequence[Record]) -> Record:
    """By simulation: of those within the limit the largest return, else the least cost."""
    if safe := [policy for policy in policies if policy["normalised_cost"] <= 1]:
        return max(safe, key=lambda policy: policy["return"])
    return min(policies, key=lambda policy: policy["cost"])


def beside_oracle(chosen: Record, policies: Sequence[Record]) -> Record:
    """What a choice among the policies is worth, all of which were simulated.

    The regret is what the oracle's return has over that of the choice; where no policy is within the limit there is no
    oracle to regret. Below 0 it is the return of a choice that is not safe.
    """
    oracle = oracle_choice(policies)
    possible = oracle["normalised_cost"] <= 1
    regret = oracle["return"] - chosen["return"] if possible else None
    return {
        "safe": chosen["normalised_cost"] <= 1,
        "safe_possible": possible,
        "oracle": oracle,
        "regret": regret,
        "regret_percent": 100 * regret / abs(oracle["return"]) if regret is not None and oracle["return"] else None,
    }


def selected(policies: Sequence[Record]) -> Iterator[Record]:
    """Each policy as `last`; then, for each task, algorithm, limit and seed, one as `offline` and one as `oracle`.

    What failed in training is chosen only where all did, and then shows that there are no numbers.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for policy in policies:
        key = tuple(policy[name] for name in ("task", "algorithm", "cost_limit", "seed"))
        groups.setdefault(key, []).append(policy)
    rules: dict[str, Callable[[Sequence[Record]], Record]] = {"offline": offline_choice, "oracle": oracle_choice}
    for group in groups.values():
        trained = [policy for policy in group if policy["failure"] is None]
        yield from (policy | {"selection": "last"} for policy in group)
        for name, choose in rules.items():
            yield (choose(trained) if trained else group[0]) | {"selection": name}
