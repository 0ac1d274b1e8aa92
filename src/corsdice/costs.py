"""Cost limits and their units: the one place where units convert.

A limit can be stated in three ways, and mistaking one for another makes a constraint a hundred times too loose:

- per episode: the undiscounted sum over `horizon` steps, as benchmarks and people state it;
- discounted: the sum of γ^t c_t, the unit of a cost critic Q_c;
- per step: (1-γ) times the discounted sum, the unit of E_D[w(s) w(a|s) c], so of every DICE estimate.

They convert as if the cost were the same at every step, which is how the paper and DSRL adjust limits.

>>> limit = CostLimit.episodic(40, horizon=1000, discount=0.99)
>>> print(limit)
40 per episode of 1000 steps = 3.9998 discounted (γ=0.99) = 0.039998 per step
>>> limit.admits(PerStepCost(0.05))
False
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NewType

from corsdice.errors import UserError

TAIL = 1e-4
"""The weight γ^T at which a discounted sum may stop."""

LimitOn = Literal["mean", "quantile", "cvar"]
"""What of an episode's cost a limit is put on: its mean, what nine in ten episodes stay within, or the mean of the
dearest tenth (the conditional value at risk)."""
LIMITED: dict[LimitOn, str] = {
    "mean": "cost",
    "quantile": "cost that nine in ten episodes stay within",
    "cvar": "mean cost of the dearest tenth of episodes",
}

EpisodeCost = NewType("EpisodeCost", float)
DiscountedCost = NewType("DiscountedCost", float)
PerStepCost = NewType("PerStepCost", float)


@dataclass(frozen=True)
class CostLimit:
    """An upper limit on a policy's cost. `per_step` is what is stored; the other units are views of it."""

    per_step: PerStepCost
    horizon: int
    discount: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.per_step) and self.per_step >= 0):
            raise UserError(f"a cost limit must be a finite number >= 0, got {self.per_step}")
        if not 0 <= self.discount < 1:
            raise UserError(f"the discount must be in [0, 1), got {self.discount}")
        if self.horizon != int(self.horizon) or self.horizon < 1:
            raise UserError(f"the horizon must be a whole number of steps >= 1, got {self.horizon}")

    @classmethod
    def episodic(cls, limit: float, *, horizon: int, discount: float = 0.99) -> CostLimit:
        """From an undiscounted sum over an episode of `horizon` steps: per step, C (1-γ^H) / H."""
        probe = cls(PerStepCost(0.0), horizon, discount)  # validates before dividing
        return cls(PerStepCost(limit / probe.episode_per_step), horizon, discount)

    @classmethod
    def from_discounted(cls, limit: float, *, horizon: int, discount: float = 0.99) -> CostLimit:
        """From a discounted sum Σ γ^t c_t."""
        return cls(PerStepCost((1 - discount) * limit), horizon, discount)

    @classmethod
    def from_per_step(cls, limit: float, *, horizon: int, discount: float = 0.99) -> CostLimit:
        """From the normalised unit (1-γ) Σ γ^t c_t of a DICE estimate."""
        return cls(PerStepCost(limit), horizon, discount)

    @property
    def discounted(self) -> DiscountedCost:
        return DiscountedCost(self.per_step / (1 - self.discount))

    @property
    def episode(self) -> EpisodeCost:
        return EpisodeCost(self.per_step * self.episode_per_step)

    @property
    def episode_per_step(self) -> float:
        """What one unit of normalised cost amounts to in an episode: H / (1-γ^H)."""
        return self.horizon / (1 - self.discount**self.horizon)

    def admits(self, cost: PerStepCost, tolerance: float = 0.0) -> bool:
        """Whether a cost, in the normalised unit, respects the limit."""
        return cost <= self.per_step + tolerance

    def __str__(self) -> str:
        return (
            f"{self.episode:.5g} per episode of {self.horizon} steps = {self.discounted:.5g} discounted "
            f"(γ={self.discount:g}) = {self.per_step:.5g} per step"
        )


def discounted_steps(discount: float) -> int:
    """The first T with γ^T <= TAIL."""
    if not 0 <= discount < 1:
        raise UserError(f"the discount must be in [0, 1), got {discount}")
    return math.ceil(math.log(TAIL) / math.log(discount)) if discount else 1
