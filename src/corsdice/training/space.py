"""Where a search draws its hyper-parameters from: what a person writes, checked, as Optuna's distributions.

alpha=log:1e-3:100    learning_rate=uniform:1e-4:1e-3    components=choice:1,3,5
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from corsdice.algorithms import by_name
from corsdice.errors import UserError

try:
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
except ImportError as error:
    raise UserError("a search needs the package optuna: pip install 'corsdice[search]'") from error

Space = dict[str, BaseDistribution]
OF_A_MEMBER = ("alpha", "learning_rate", "target_rate", "multiplier_rate", "multiplier")
"""Numbers that may differ within a population."""
OF_A_MOVING_MULTIPLIER = ("multiplier_rate", "multiplier")
OF_A_RUN = ("discount",)
"""A number that the units and the estimates of a whole population rest on."""
USUAL = "alpha=log:1e-3:100"


def parse_space(stated: Sequence[str], algorithm: str) -> Space:
    """What each name is drawn from; α is always searched, over the usual range unless another is stated.

    >>> parse_space(["components=choice:1,3"], "corsdice")["components"]
    CategoricalDistribution(choices=(1, 3))
    """
    space: Space = {}
    for text in stated:
        name, _, rest = text.partition("=")
        if name in space:
            raise UserError(f"--space names {name} twice")
        if name in OF_A_MOVING_MULTIPLIER and by_name(algorithm).is_family:
            raise UserError(f"--space {name}: λ does not move in {algorithm}, which learns for every λ at once")
        space[name] = _distribution(text, _type(name, algorithm), rest)
        if name not in OF_A_MEMBER and not isinstance(space[name], CategoricalDistribution):
            raise UserError(f"--space {text}: a population shares one {name}, so give a few values: {name}=choice:A,B")
    return space if "alpha" in space else {"alpha": _distribution(USUAL, float, USUAL.partition("=")[2])} | space


def split_draw(drawn: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any], dict[str, Any]]:
    """A trial's values as those of a member, the settings of its run, and the options of the algorithm."""
    return (
        {name: value for name, value in drawn.items() if name in OF_A_MEMBER},
        {name: value for name, value in drawn.items() if name in OF_A_RUN},
        {name: value for name, value in drawn.items() if name not in OF_A_MEMBER + OF_A_RUN},
    )


def _type(name: str, algorithm: str) -> Any:
    """What the values of a hyper-parameter are; widths and steps are given once for all trials."""
    config = type(by_name(algorithm).config())
    hints = get_type_hints(config)
    options = {field.name: hints[field.name] for field in dataclasses.fields(config)}
    known = dict.fromkeys(OF_A_MEMBER + OF_A_RUN, float) | {
        option: kind for option, kind in options.items() if option != "steps" and get_origin(kind) is not tuple
    }
    if name not in known:
        raise UserError(f"--space: {algorithm} has no {name!r} to search; choose from {', '.join(known)}")
    return known[name]


def _distribution(text: str, kind: Any, rest: str) -> BaseDistribution:
    how, _, values = rest.partition(":")
    if how == "choice":
        return CategoricalDistribution([_value(text, kind, value) for value in values.split(",")])
    bounds = values.split(":")
    if how not in ("log", "uniform") or len(bounds) != 2 or kind is not float:
        usage = "name=log:LOW:HIGH, name=uniform:LOW:HIGH or name=choice:A,B,…"
        raise UserError(f"cannot read --space {text}: write {usage if kind is float else 'name=choice:A,B,…'}")
    low, high = (_value(text, float, bound) for bound in bounds)
    if not low < high or (how == "log" and low <= 0):
        raise UserError(f"--space {text}: {how} needs {'0 < ' if how == 'log' else ''}LOW < HIGH")
    return FloatDistribution(low, high, log=how == "log")


def _value(text: str, kind: Any, value: str) -> Any:
    """One value of the type that the algorithm expects there."""
    if kind is bool or get_origin(kind) is Literal:
        allowed = {"true": True, "false": False} if kind is bool else {each: each for each in get_args(kind)}
        if value.lower() not in allowed:
            raise UserError(f"--space {text}: {value!r} is none of {', '.join(allowed)}")
        return allowed[value.lower()]
    try:
        number = kind(value)
        if kind is not str and not math.isfinite(number):
            raise ValueError
    except ValueError:
        raise UserError(f"--space {text}: {value!r} is not {'a whole' if kind is int else 'a'} number") from None
    if number == 0 and text.startswith("multiplier="):
        return number
    if (kind is int or text.partition("=")[0] in OF_A_MEMBER) and number <= 0:
        raise UserError(f"--space {text}: {value} is not positive")
    return number
