"""The settings of the experiments, as the command line shows them. Light on purpose: nothing here imports JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corsdice.errors import UserError
from corsdice.experiments.checks import at_least, discount_below_one, positive, task_files


@dataclass(frozen=True)
class RandomMDPConfig:
    """Figure 1: return and violations of seven methods on random MDPs, against the regularisation."""

    runs: int = 300
    """Random MDPs, each with its own logs."""
    out: Path = Path("out/random-mdp")
    """Where results.csv, summary.json and figure.png go."""
    seed: int = 0
    """Run i depends on (seed, i) alone: 30 runs are the first 30 of 300."""
    alphas: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    """Regularisation of OptiDICE, SemiDICE, Extraction, SQL and XQL."""
    betas: tuple[float, ...] = (0.99, 0.9, 0.7, 0.5, 0.3, 0.1)
    """Trade-off of f-DVL and ODICE, from weak to strong regularisation."""
    divergence: Literal["chi2", "soft-chi2", "kl"] = "chi2"
    """Of OptiDICE, SemiDICE, f-DVL and ODICE."""
    states: int = 30
    actions: int = 4
    successors: int = 4
    """Possible next states of each state-action pair."""
    discount: float = 0.95
    trajectories: int = 30
    """Logged episodes."""
    horizon: int = 50
    """Steps after which a logged episode is cut off."""
    optimality: float = 0.5
    """Share of the optimal policy in the behaviour policy; the rest is uniform."""
    unseen: Literal["uniform", "absorbing"] = "uniform"
    """Where a pair that the logs never show leads in the model: to any state, or to an absorbing one."""
    behaviour: Literal["known", "empirical"] = "known"
    """Whether the methods know the behaviour policy or count it from the logs."""
    goal: Literal["continues", "ends"] = "continues"
    """Whether reward keeps flowing at the goal, or acting there ends the episode."""

    def __post_init__(self) -> None:
        at_least(1, runs=self.runs, trajectories=self.trajectories, horizon=self.horizon, actions=self.actions)
        at_least(1, successors=self.successors)
        at_least(max(2, self.successors), states=self.states)
        discount_below_one(self.discount)
        positive(alphas=self.alphas)
        if not self.betas or not all(0 < beta < 1 for beta in self.betas):
            raise UserError(f"--betas must lie strictly between 0 and 1, got {self.betas}")
        if len(self.alphas) != len(self.betas):
            raise UserError("--alphas and --betas must have the same length: they share the figure's axis")
        if not 0 <= self.optimality < 1:
            raise UserError(f"--optimality must be in [0, 1), got {self.optimality}: the logs must cover every action")


@dataclass(frozen=True)
class FourRoomsConfig:
    """OptiDICE leaves states without any action; SemiDICE never does. Four rooms, side by side.

    The logs are endless: what OptiDICE leaves empty, it leaves empty although the logs are full of it.
    """

    out: Path = Path("out/four-rooms")
    """Where results.csv, summary.json and figure.png go."""
    alpha: float = 0.01
    """Regularisation of both methods."""
    divergence: Literal["chi2", "soft-chi2", "kl"] = "chi2"
    discount: float = 0.95
    slip: float = 0.0
    """Chance that a move goes in a random direction; above 0 every policy visits every cell, so none is empty."""
    optimality: float = 0.5
    """Share of the optimal policy in the behaviour policy; the rest is uniform."""

    def __post_init__(self) -> None:
        positive(alpha=(self.alpha,))
        discount_below_one(self.discount)
        for name, share in (("slip", self.slip), ("optimality", self.optimality)):
            if not 0 <= share < 1:
                raise UserError(f"--{name} must be in [0, 1), got {share}")


@dataclass(frozen=True)
class ConstrainedMDPConfig:
    """Return and cost against the limit: naive SemiDICE, COptiDICE, CORSDICE and the LP optimum."""

    runs: int = 100
    """Random constrained MDPs, each with its own logs."""
    out: Path = Path("out/constrained-mdp")
    """Where results.csv, summary.json and figure.png go."""
    seed: int = 0
    problems: tuple[Literal["random", "sepsis"], ...] = ("random", "sepsis")
    """Which problems to solve; sepsis needs the extra: pip install 'corsdice[sepsis]'."""
    methods: tuple[Literal["naive-semidice", "coptidice", "corsdice", "lp"], ...] = (
        "naive-semidice",
        "coptidice",
        "corsdice",
        "lp",
    )
    """Which methods to run; on sepsis coptidice and lp take about a minute a limit, the others seconds."""
    alpha: float = 0.01
    """Regularisation on the random MDPs."""
    limits: tuple[float, ...] = (0.02, 0.05, 0.1, 0.15, 0.2)
    """Cost limits per step (normalised) on the random MDPs, each drawn so that the largest one binds."""
    trajectories: int = 30
    """Logged episodes on the random MDPs."""
    horizon: int = 50
    """Steps after which a logged episode is cut off."""
    sepsis_alpha: float = 0.01
    """Regularisation on sepsis; the smaller, the more the methods exploit errors of the model."""
    sepsis_limits: tuple[float, ...] = (0.025, 0.035, 0.045)
    """Limits of the treatment intensity per step on sepsis; the clinicians' is about 0.084."""
    patients: int = 20_000
    """Patients in the logs of sepsis, treated by the clinicians' policy."""
    divergence: Literal["chi2", "soft-chi2", "kl"] = "chi2"
    discount: float = 0.95

    def __post_init__(self) -> None:
        at_least(1, runs=self.runs, trajectories=self.trajectories, horizon=self.horizon, patients=self.patients)
        positive(alpha=(self.alpha,), limits=self.limits)
        positive(sepsis_alpha=(self.sepsis_alpha,), sepsis_limits=self.sepsis_limits)
        discount_below_one(self.discount)
        if not self.problems:
            raise UserError("--problems must name at least one of: random, sepsis")
        if not self.methods:
            raise UserError("--methods must name at least one of: naive-semidice, coptidice, corsdice, lp")


@dataclass(frozen=True)
class DemoConfig:
    """Make logs of an embedded task, train CORSDICE and two clones on them, and compare estimates and truth."""

    out: Path = Path("out/demo")
    """Where the logs, the runs, the report and summary.json go. Runs that are there already are gone on with."""
    task: str = "point-circle"
    limits: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0)
    """Undiscounted costs an episode may have: CORSDICE is trained once for all of them."""
    seeds: int = 3
    """Of CORSDICE."""
    episodes: int = 1000
    """Logged episodes."""
    data_seed: int = 0
    steps: int = 6000
    clone_steps: int = 2000
    """Updates of the behaviour clones."""
    widths: tuple[int, ...] = (128, 128)
    batch_size: int = 128
    truth_episodes: int = 1000

    def __post_init__(self) -> None:
        at_least(1, seeds=self.seeds, steps=self.steps, clone_steps=self.clone_steps, batch_size=self.batch_size)
        at_least(2, episodes=self.episodes, truth_episodes=self.truth_episodes)
        positive(limits=self.limits, widths=tuple(map(float, self.widths)))


AlgorithmName = Literal[
    "corsdice",
    "corsdice-paper",
    "semidice",
    "naive-semidice",
    "f-dvl",
    "sql",
    "xql",
    "odice",
    "optidice",
    "coptidice",
    "bc-all",
    "bc-safe",
    "bcq-lag",
    "bear-lag",
    "cpq",
    "d-corsdice",
    "d-bc-all",
    "d-bc-safe",
]
EmbeddedTask = Literal["point-circle", "point-run", "point-ridge", "home-battery", "dispatch"]
OpeTask = Literal["point-circle", "point-run", "point-ridge", "hopper", "walker2d", "halfcheetah"]
EstimatorName = Literal[
    "models",
    "extraction",
    "extraction-states",
    "extraction-networks",
    "extraction-networks-kl",
    "dualdice",
    "ihope",
    "fqe",
    "naive",
]


@dataclass(frozen=True)
class OpeTableConfig:
    """Table 1: errors of off-policy estimates of the discounted return and cost of SemiDICE policies."""

    out: Path = Path("out/ope")
    """Where the logs, the runs, results.csv, summary.json and calibration.png go. What is done is not done again."""
    tasks: tuple[OpeTask, ...] = ("point-circle", "point-run", "point-ridge", "hopper", "walker2d", "halfcheetah")
    """Embedded tasks, and MuJoCo's, which need the extra: pip install 'corsdice[mujoco]'."""
    data: tuple[str, ...] = ()
    """Logs to use instead of those made here, as task=file."""
    alphas: tuple[float, ...] = (1.0, 2.0, 5.0)
    """Regularisation of SemiDICE, in the unit of the raw reward, as the paper has it."""
    seeds: int = 5
    estimators: tuple[EstimatorName, ...] = (
        "models",
        "extraction",
        "extraction-networks",
        "dualdice",
        "ihope",
        "fqe",
        "naive",
    )
    correction: Literal["learner", "ratio"] = "learner"
    """Where w(a|s) comes from for the estimators that begin with it: SemiDICE itself, as in the paper, or the actor's
    density over a fitted one of the logs."""
    steps: int = 10_000
    """Updates of each policy."""
    widths: tuple[int, ...] = (64, 64)
    batch_size: int = 256
    estimator_steps: int = 8_000
    """Updates of the estimators that train networks."""
    estimator_widths: tuple[int, ...] = (64, 64)
    episodes: int = 1000
    """Logged episodes of an embedded task; half of them are for the estimates."""
    evidence_rows: int = 100_000
    """Most rows for the estimates, of whole episodes."""
    collect_steps: int = 1_000_000
    """Steps of the agent whose snapshots make the logs of a MuJoCo task."""
    collect_snapshots: int = 12
    """From untrained to final: many gaits. 1 is the final one alone: one gait, as in D4RL's medium grade."""
    truth_episodes: int = 200
    """Simulated episodes of each policy."""
    workers: int = 1
    """Processes that simulate a MuJoCo task."""

    def __post_init__(self) -> None:
        at_least(1, seeds=self.seeds, steps=self.steps, batch_size=self.batch_size, workers=self.workers)
        at_least(1, estimator_steps=self.estimator_steps, evidence_rows=self.evidence_rows)
        at_least(1, collect_steps=self.collect_steps, collect_snapshots=self.collect_snapshots)
        at_least(2, episodes=self.episodes, truth_episodes=self.truth_episodes)
        positive(alphas=self.alphas, widths=tuple(map(float, self.widths)))
        positive(estimator_widths=tuple(map(float, self.estimator_widths)))
        if not self.tasks or not self.estimators:
            raise UserError("--tasks and --estimators must name at least one each")
        self.files()

    def files(self) -> dict[str, Path]:
        """The file that --data names for a task."""
        return task_files(self.data, self.tasks)

    def trained(self) -> dict[str, object]:
        """All that the policies of a task depend on beside its logs, in JSON's types."""
        return {
            "alphas": list(self.alphas),
            "seeds": self.seeds,
            "steps": self.steps,
            "widths": list(self.widths),
            "batch_size": self.batch_size,
        }

    def estimated(self) -> dict[str, object]:
        """All that an estimate depends on beside the policy."""
        return {
            "correction": self.correction,
            "estimator_steps": self.estimator_steps,
            "estimator_widths": list(self.estimator_widths),
            "evidence_rows": self.evidence_rows,
        }

    def made(self, task: str) -> dict[str, object]:
        """All that logs made here depend on."""
        if task.startswith("point-"):
            return {"episodes": self.episodes}
        return {"steps": self.collect_steps, "snapshots": self.collect_snapshots}
