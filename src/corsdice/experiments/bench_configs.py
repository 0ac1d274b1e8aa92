"""The settings of the benchmarks of time and memory. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corsdice.errors import UserError
from corsdice.experiments.checks import at_least, positive


@dataclass(frozen=True)
class BenchTabularConfig:
    """Time and memory of exact SemiDICE + Extraction as the number of states grows."""

    states: tuple[int, ...] = (30, 300, 3_000, 10_000)
    repeats: int = 5
    """Timed solves after compilation; the median is shown."""

    def __post_init__(self) -> None:
        at_least(1, repeats=self.repeats)
        if not self.states or not all(states >= 5 for states in self.states):
            raise UserError(f"--states must be at least 5 each, got {self.states}")


@dataclass(frozen=True)
class BenchTrainingConfig:
    """Updates a second of CORSDICE, as a family and as the paper has it, against this machine's matrix products."""

    populations: tuple[int, ...] = (1, 5, 25)
    """Members trained in one program."""
    updates: int = 300
    """Timed updates of all members together."""

    def __post_init__(self) -> None:
        positive(populations=tuple(map(float, self.populations)))
        at_least(1, updates=self.updates)


@dataclass(frozen=True)
class BenchDiffusionConfig:
    """Score training against the matrix products that this machine can do, and milliseconds for an action."""

    width: int = 128
    blocks: int = 3
    """Residual ones of the score model."""
    batch_size: int = 512
    solver_steps: int = 10
    candidates: tuple[int, ...] = (1, 32, 128)
    """Actions to choose from."""
    rows: tuple[int, ...] = (1, 1000)
    """Observations in one call."""
    updates: int = 30
    """Timed updates of the score model in one piece."""

    def __post_init__(self) -> None:
        at_least(1, width=self.width, blocks=self.blocks, batch_size=self.batch_size, updates=self.updates)
        at_least(2, solver_steps=self.solver_steps)
        positive(candidates=tuple(map(float, self.candidates)), rows=tuple(map(float, self.rows)))


@dataclass(frozen=True)
class BenchScaleConfig:
    """How long all of the paper's Table 2 would take, here and on many machines, from updates timed on one core."""

    out: Path = Path("out/scale")
    """Where results.csv, summary.json and provenance.json go."""
    updates: int = 200
    """Timed, three times, of each method."""
    tasks: int = 38
    limits: int = 3
    members: int = 25
    """Trained for each task and limit, or of a family for all limits: five seeds with five values of what is searched,
    of every method."""
    steps: int = 1_000_000
    policy_seconds: float = 60.0
    """To estimate and to simulate one policy, on one core."""
    frontier_seconds: float = 120.0
    """To trace the frontier of one member of a family, on one core."""
    machines: tuple[int, ...] = (1, 10, 100, 1000)
    cores: int = 2
    """Of each machine."""
    cell_members: tuple[int, ...] = (25, 5, 1)
    """Members in a cell, as `bench dsrl --cell-members` has it."""

    def __post_init__(self) -> None:
        numbers = ("updates", "tasks", "limits", "members", "steps", "cores")
        at_least(1, **{name: getattr(self, name) for name in numbers})
        at_least(0, policy_seconds=self.policy_seconds, frontier_seconds=self.frontier_seconds)
        for machines in self.machines:
            at_least(1, machines=machines)
        for members in self.cell_members:
            at_least(1, cell_members=members)
