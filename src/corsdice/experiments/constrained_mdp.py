"""Beyond the paper: which constrained method keeps its word, exactly, on random MDPs and on sepsis.

Every method is given the model of the logs. Three costs must be told apart: the one the method estimates, the one its
policy really has in that model (a sound method makes these two equal, and at most the limit), and the one it has in the
true MDP, which differs by the error of the model: what finite logs cost, whatever the method.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import files, tabular
from corsdice.divergences import Divergence, by_name
from corsdice.experiments.configs import ConstrainedMDPConfig
from corsdice.report import figures, terminal
from corsdice.tabular import FiniteMDP, LoggedMDP, Solution, Status

SOLVED = {
    "naive-semidice": ("naive SemiDICE", tabular.naive_semidice),
    "coptidice": ("COptiDICE", tabular.coptidice),
    "corsdice": ("CORSDICE", tabular.corsdice),
}
LP = "LP optimum"
CHUNK = 20
"""Random MDPs solved at once."""
TOLERANCE = 1e-6


class Problem(NamedTuple):
    truth: FiniteMDP
    logs: LoggedMDP


Number = jax.Array | float


class Measures(NamedTuple):
    multiplier: Number
    estimated_cost: Number
    model_cost: Number
    true_cost: Number
    model_return: Number
    true_return: Number
    status: Number


Row = dict[str, Any]
"""One line of results.csv: KEYS, then the fields of Measures."""
KEYS = ("problem", "run", "method", "alpha", "limit")


def random_problem(config: ConstrainedMDPConfig, run: jax.Array) -> Problem:
    """A random constrained MDP on which the largest limit binds, and its model from logs."""
    mdp_key, log_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), run))
    truth = tabular.random_constrained_mdp(mdp_key, max(config.limits), discount=config.discount).mdp
    behaviour = tabular.mixed_behaviour(truth)
    counts = tabular.simulate_counts(log_key, truth, behaviour, config.trajectories, config.horizon)
    return Problem(truth, tabular.logged(tabular.mle_model(truth, counts, "uniform"), behaviour))


def sepsis_problem(config: ConstrainedMDPConfig) -> Problem:
    """Patients treated by the clinicians; the methods see counts alone, of transitions and of treatments."""
    truth, clinicians = tabular.sepsis(config.discount)
    key = jax.random.fold_in(jax.random.key(config.seed), 716)
    counts = tabular.simulate_counts(key, truth, clinicians, config.patients, horizon=100)
    model = tabular.mle_model(truth, counts, "absorbing")
    return Problem(truth, tabular.logged(model, tabular.empirical_policy(counts)))


def measure(problem: Problem, solution: Solution) -> Measures:
    truth, model = problem.truth, problem.logs.mdp
    return Measures(
        multiplier=solution.lam,
        estimated_cost=problem.logs.estimate(solution.w, model.costs),
        model_cost=tabular.expected(model, solution.policy, model.costs),
        true_cost=tabular.expected(truth, solution.policy, truth.costs),
        model_return=tabular.expected(model, solution.policy, model.rewards),
        true_return=tabular.expected(truth, solution.policy, truth.rewards),
        status=solution.status,
    )


def lp_row(name: str, run: int, problem: Problem, limit: float) -> Row:
    """The best that any policy inside the support of the logs can do in the model."""
    model, truth = problem.logs.mdp, problem.truth
    best = tabular.linear_program(model, limit, allowed=np.asarray(problem.logs.distribution) > 0)
    measures = Measures(
        multiplier=float("nan"),
        estimated_cost=best.cost,
        model_cost=best.cost,
        true_cost=float(tabular.expected(truth, jnp.asarray(best.policy), truth.costs)),
        model_return=best.value,
        true_return=float(tabular.expected(truth, jnp.asarray(best.policy), truth.rewards)),
        status=Status.CONVERGED,
    )
    return make_row((name, run, LP, 0.0, limit), measures)


def make_row(keys: tuple[str, int, str, float, float], measures: Measures) -> Row:
    numbers = {field: float(value) for field, value in measures._asdict().items() if field != "status"}
    return dict(zip(KEYS, keys, strict=True)) | numbers | {"status": Status(int(measures.status)).name.lower()}


def chosen(config: ConstrainedMDPConfig) -> dict[str, Callable[..., Solution]]:
    """The solvers that the settings ask for, by the name that people see."""
    return dict(SOLVED[method] for method in config.methods if method in SOLVED)


def solve_random(config: ConstrainedMDPConfig, f: Divergence, advance: Callable[[str], None]) -> Iterator[list[Row]]:
    """The rows of one chunk of random MDPs after another."""
    limits = jnp.asarray(config.limits)
    make = jax.jit(jax.vmap(lambda run: random_problem(config, run)))

    def at_every_limit(solve: Callable[..., Solution], problem: Problem) -> Measures:
        return jax.vmap(lambda limit: measure(problem, solve(problem.logs, config.alpha, limit, f)))(limits)

    programs = {name: jax.jit(jax.vmap(partial(at_every_limit, solve))) for name, solve in chosen(config).items()}
    for start in range(0, config.runs, CHUNK):
        rows: list[Row] = []
        problems = make(jnp.arange(start, start + CHUNK))
        solved = {method: jax.device_get(program(problems)) for method, program in programs.items()}
        for i in range(min(CHUNK, config.runs - start)):
            for j, limit in enumerate(config.limits):
                for method, measures in solved.items():
                    cell = Measures(*(m[i, j] for m in measures))
                    rows.append(make_row(("random", start + i, method, config.alpha, limit), cell))
                if "lp" in config.methods:
                    rows.append(lp_row("random", start + i, jax.tree.map(operator.itemgetter(i), problems), limit))
        advance(f"random MDPs {start + 1}-{start + CHUNK}")
        yield rows


def solve_sepsis(config: ConstrainedMDPConfig, f: Divergence, advance: Callable[[str], None]) -> Iterator[list[Row]]:
    """The rows of one limit after another."""
    problem = sepsis_problem(config)
    for limit in config.sepsis_limits:
        rows: list[Row] = []
        for method, solve in chosen(config).items():
            measures = jax.device_get(measure(problem, solve(problem.logs, config.sepsis_alpha, limit, f)))
            rows.append(make_row(("sepsis", 0, method, config.sepsis_alpha, limit), measures))
            advance(f"sepsis, {method}, limit {limit:g}")
        if "lp" in config.methods:
            rows.append(lp_row("sepsis", 0, problem, limit))
            advance(f"sepsis, {LP}, limit {limit:g}")
        yield rows


SOLVERS = {"random": solve_random, "sepsis": solve_sepsis}


def compute(config: ConstrainedMDPConfig) -> list[Row]:
    f = by_name(config.divergence)
    steps = {"random": -(-config.runs // CHUNK), "sepsis": len(config.methods) * len(config.sepsis_limits)}
    rows: list[Row] = []
    with tabular.float64(), terminal.progress(sum(steps[name] for name in config.problems), "steps") as advance:
        try:
            for problem in config.problems:
                for part in SOLVERS[problem](config, f, advance):
                    rows += part
        except KeyboardInterrupt:
            if not rows:
                raise
            print(f"Interrupted: keeping the {len(rows)} rows that are done.")
    return rows


def run(config: ConstrainedMDPConfig) -> dict[str, Any]:
    """Solves the chosen problems, writes the figure, and returns the summary. Ctrl-C keeps what is done."""
    started = time.monotonic()
    out = files.output_directory(config.out)
    rows = compute(config)
    files.write_csv(out / "results.csv", (*KEYS, *Measures._fields), (row.values() for row in rows))
    summary = summarise(rows) | files.provenance(config, time.monotonic() - started)
    files.write_json(out / "summary.json", summary)
    with files.atomic(out / "figure.png") as path:
        draw(rows, path)
    for problem in config.problems:
        terminal.print_table(
            f"{problem}: cost above the limit, in the model and in truth, over all runs and limits",
            ("method", "model: worst", "over limit", "return", "truth: mean", "over limit", "return"),
            [
                (
                    row["method"],
                    f"{row['worst_model_excess']:+.1e}",
                    f"{row['share_over_the_limit_in_the_model']:.0%}",
                    f"{row['mean_model_return']:.4f}",
                    f"{row['mean_true_excess']:+.1e}",
                    f"{row['truly_unsafe']:.0%}",
                    f"{row['mean_true_return']:.4f}",
                )
                for row in summary["table"]
                if row["problem"] == problem
            ],
        )
    terminal.print_claims(summary["claims"])
    terminal.print_written(out, ("results.csv", "summary.json", "figure.png"))
    return summary


def summarise(rows: list[Row]) -> dict[str, Any]:
    table: list[dict[str, Any]] = []
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        cell = [row for row in rows if (row["problem"], row["method"]) == (problem, method)]
        excess = np.array([row["model_cost"] - row["limit"] for row in cell])
        table.append(
            {
                "problem": problem,
                "method": method,
                "worst_model_excess": float(excess.max()),
                "share_over_the_limit_in_the_model": float((excess > TOLERANCE).mean()),
                "mean_model_return": float(np.mean([row["model_return"] for row in cell])),
                "mean_true_return": float(np.mean([row["true_return"] for row in cell])),
                "worst_estimate_error": float(max(abs(row["estimated_cost"] - row["model_cost"]) for row in cell)),
                "truly_unsafe": float(np.mean([row["true_cost"] > row["limit"] + TOLERANCE for row in cell])),
                "mean_true_excess": float(np.mean([row["true_cost"] - row["limit"] for row in cell])),
            }
        )
    return {
        "claims": claims(table),
        "not_converged": [row for row in rows if row["status"] != "converged"],
        "table": table,
    }


def claims(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the exact solutions must show, as far as its methods were run."""

    def worst(*methods: str) -> float | None:
        return max((row["worst_model_excess"] for row in table if row["method"] in methods), default=None)

    said = []
    if (sound := worst("COptiDICE", "CORSDICE")) is not None:
        claim = "CORSDICE and COptiDICE meet every limit in the model, to 1e-6"
        said.append({"claim": claim, "worst": sound, "holds": sound <= TOLERANCE})
    if (naive := worst("naive SemiDICE")) is not None:
        claim = "naive SemiDICE oversteps a limit in the model"
        said.append({"claim": claim, "worst": naive, "holds": naive > TOLERANCE})
    return said


def draw(rows: list[Row], path: Path) -> None:
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    panels = (
        ("model_return", "Return in the model"),
        ("model_cost", "Cost in the model"),
        ("true_cost", "True cost"),
    )
    with figures.figure(len(problems), len(panels), width=12, height=3.6 * len(problems)) as (fig, axes):
        for axes_row, problem in zip(axes, problems, strict=True):
            limits = np.unique([row["limit"] for row in rows if row["problem"] == problem])
            for axis, (name, title) in zip(axes_row, panels, strict=True):
                for method in dict.fromkeys(row["method"] for row in rows):
                    cell = [r for r in rows if (r["problem"], r["method"]) == (problem, method)]
                    values = np.array([[r[name] for r in cell if r["limit"] == limit] for limit in limits])
                    figures.band(axis, limits, values, method, whole_range=name != "model_return")
                if name != "model_return":
                    axis.plot(limits, limits, color="grey", linestyle=":", linewidth=1)
                    axis.text(limits[-1], limits[-1], "the limit ", color="grey", ha="right", va="bottom", fontsize=8)
                axis.set_title(f"{title} ({problem})")
                axis.set_xlabel("cost limit per step")
                axis.set_xticks(limits)
        fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        fig.savefig(path)
