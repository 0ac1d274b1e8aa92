"""Which α is reported for a limit and a seed: every one, the one that logs alone would choose, the simulator's choice.

The paper reports the simulator's. Who has nothing but logs cannot choose so, and has the offline choice instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from corsdice.ope import preference

Record = dict[str, Any]
"""What is known of one policy; `failure` tells why it has no numbers."""


def offline_choice(policies: Sequence[Record]) -> Record:
    """By the estimate from logs: of those that meet the limit the largest return, else the least that may be cost."""

    def key(policy: Record) -> tuple[bool, float]:
        names = ("verdict", "estimated_return", "estimated_cost_high", "cost_limit")
        return preference(*(policy[name] for name in names))

    return max(policies, key=key)


def oracle_choice(policies: Sequence[Record]) -> Record:
    """By simulation: of those within the limit the largest return, else the least cost."""
    if safe := [policy for policy in policies if policy["normalised_cost"] <= 1]:
        return max(safe, key=lambda policy: policy["return"])
    return min(policies, key=lambda policy: policy["cost"])


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
