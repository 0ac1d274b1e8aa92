"""What `corsdice train`, `ope`, `evaluate` and `report` can be told; `learn` carries it out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from corsdice.costs import LimitOn
from corsdice.data import Columns
from corsdice.experiments.configs import AlgorithmName, EstimatorName


@dataclass(frozen=True)
class TrainConfig:
    """Learn policies from a log file, estimate what each returns and costs, and write a report.

    CORSDICE learns one for every cost limit at once: a limit chooses among them, now or with `corsdice select`. Run it
    again with the same options to go on from where it was stopped.
    """

    data: Annotated[str, tyro.conf.Positional]
    """A .hdf5, .h5, .npz, .parquet or .csv file, minari:dataset-id or dsrl:task."""
    out: Path
    """Directory of the run."""
    cost_limit: tuple[float, ...] = ()
    """What an episode may cost, undiscounted: each asks for a policy and a verdict. CORSDICE needs none."""
    limit_on: LimitOn = "mean"
    """What a limit is put on: the mean cost of an episode, the cost that nine in ten episodes stay within (quantile),
    or the mean of the dearest tenth (cvar)."""
    algorithm: AlgorithmName = "corsdice"
    alpha: tuple[float, ...] = ()
    """How closely to stay with the logs, whatever the scale of the reward; several are trained side by side. 0.3 unless
    said, and of CORSDICE 0.03 and 0.3, among which a limit chooses."""
    seeds: int = 1
    horizon: int | None = None
    """Steps an episode may last; needed where the data do not tell."""
    steps: int | None = None
    """Updates of each policy; 20,000 unless said."""
    widths: tuple[int, ...] | None = None
    """Hidden layers of every network; 256 256 unless said."""
    batch_size: int | None = None
    divergence: Literal["kl", "chi2", "soft-chi2"] | None = None
    """f of the policy."""
    extraction_divergence: Literal["kl", "chi2", "soft-chi2"] | None = None
    """f of the extraction by networks."""
    estimate: Literal["networks", "naive", "none"] | None = None
    """What tells Algorithm 1's λ the cost."""
    critics: int | None = None
    """Q networks; with two the smaller value counts."""
    components: int | None = None
    """Gaussians in the actor's mixture."""
    squash: bool | None = None
    """Actions through tanh rather than clipped."""
    way: Literal["resample", "guide"] | None = None
    """How d-corsdice acts: one of some candidates in proportion to w(a|s), or the best of guided ones."""
    candidates: int | None = None
    """Of d-corsdice: actions to choose from; 16 unless said."""
    guidance_scale: float | None = None
    guidance: Literal["denoising", "energy"] | None = None
    """How guidance is learned: by denoising with weights w(a|s), or as the energy of the paper."""
    score_width: int | None = None
    """Of the model of the logged actions, of d-corsdice and its clones; 128 unless said."""
    blocks: int | None = None
    """Residual ones of that model; 3 unless said."""
    score_batch: int | None = None
    score_steps: int | None = None
    """Updates of d-corsdice's model of the logged actions; 6,000 unless said."""
    solver_steps: int | None = None
    """Predictions from noise to an action; 10 unless said."""
    layer_norm: bool | None = None
    cosine_decay: bool | None = None
    discount: float | None = None
    learning_rate: float | None = None
    holdout: float = 0.2
    """Share of the episodes kept from training, for the estimates."""
    preset: Literal["default", "paper"] = "default"
    """`paper` follows the paper's settings to the letter."""
    chunk: int = 1000
    """Updates between two checkpoints."""
    keep: int = 1
    """Keep the policies of so many evenly spaced steps, the last among them, for `corsdice select`."""
    population: Literal["auto", "vmap", "map"] = "auto"
    """Members side by side, or one after another in one program."""
    columns: Annotated[Columns, tyro.conf.arg(name="")] = field(default_factory=Columns)


@dataclass(frozen=True)
class OpeConfig:
    """Estimate from logs what policies return and cost, with intervals and a verdict."""

    policy: Annotated[str, tyro.conf.Positional]
    """Directory of a run, a saved policy or family, or module:function from observations [n, ...] to actions."""
    data: str | None = None
    """Other logs than those a run held out; all of them are used, so no policy may have been trained on them."""
    estimators: tuple[EstimatorName, ...] = ()
    """Second opinions beside the models, each of which takes a minute or more."""
    cost_limit: float | None = None
    """What an episode may cost, undiscounted, for a policy that does not know it; of a family it chooses the policy."""
    limit_on: LimitOn | None = None
    """What --cost-limit is put on: the mean cost of an episode, the cost that nine in ten episodes stay within
    (quantile), or the mean of the dearest tenth (cvar). What the policy was chosen by, or the mean, unless said."""
    horizon: int | None = None
    """Steps an episode may last, for a saved policy or a function; needed where the data do not tell."""
    discount: float = 0.99
    """For a saved policy or a function; a run has its own."""
    json: bool = False
    """Print the estimates as JSON."""


@dataclass(frozen=True)
class EvaluateConfig:
    """Run the policies of a run in a simulator."""

    run: Annotated[Path, tyro.conf.Positional]
    """Directory of the run."""
    env: str
    """An embedded task (point-circle, …) or a Gymnasium id with the cost in info["cost"]."""
    episodes: int = 200
    seed: int = 0
    workers: int = min(2, os.cpu_count() or 1)
    """Processes that Gymnasium environments are spread over; the results do not depend on it."""
    json: bool = False
    """Print the results as JSON."""


@dataclass(frozen=True)
class ReportConfig:
    """Write a run's report: one HTML file that works offline."""

    run: Annotated[Path, tyro.conf.Positional]
    """Directory of the run."""
    out: Path | None = None
    """RUN/report.html unless said."""
