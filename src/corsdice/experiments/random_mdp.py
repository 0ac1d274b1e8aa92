"""Figure 1 of the paper: which methods find a policy correction, which a stationary one, and what they earn."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from corsdice import files, tabular
from corsdice.divergences import by_name
from corsdice.experiments.configs import RandomMDPConfig
from corsdice.report import figures, terminal
from corsdice.tabular import FiniteMDP, LoggedMDP, Solution, Status

COLUMNS = ("run", "method", "parameter", "return", "normalised_return", "flow_violation", "policy_violation", "status")
CHUNK = 30
"""Runs computed at once; the last chunk is padded, so that every chunk is the same compiled program."""


class Problem(NamedTuple):
    truth: FiniteMDP
    logs: LoggedMDP
    worst: jax.Array
    """ρ(uniform), the zero of the normalised return."""
    best: jax.Array
    """ρ(π*), its one."""
    behaviour: jax.Array
    """ρ(π_D)."""

    def normalise(self, value: jax.Array) -> jax.Array:
        return (value - self.worst) / (self.best - self.worst)


Numbers = jax.Array | np.ndarray


class Measures(NamedTuple):
    value: Numbers
    normalised: Numbers
    flow_violation: Numbers
    policy_violation: Numbers
    status: Numbers


def make_problem(config: RandomMDPConfig, run: jax.Array) -> Problem:
    mdp_key, log_key = jax.random.split(jax.random.fold_in(jax.random.key(config.seed), run))
    truth = tabular.random_mdp(
        mdp_key,
        config.states,
        config.actions,
        config.successors,
        config.discount,
        absorbing=config.unseen == "absorbing",
        goal_ends=config.goal == "ends",
    )
    best = tabular.optimal_policy(truth, truth.rewards)
    worst = tabular.uniform_policy(truth)
    behaviour = config.optimality * best + (1 - config.optimality) * worst
    counts = tabular.simulate_counts(log_key, truth, behaviour, config.trajectories, config.horizon)
    seen_as = behaviour if config.behaviour == "known" else tabular.empirical_policy(counts)
    logs = tabular.logged(tabular.mle_model(truth, counts, config.unseen), seen_as)
    worth = [tabular.expected(truth, policy, truth.rewards) for policy in (worst, best, behaviour)]
    return Problem(truth, logs, *worth)


def solvers(config: RandomMDPConfig) -> list[tuple[tuple[float, ...], Callable[[LoggedMDP, Any], dict[str, Solution]]]]:
    """The parameters and the solver of each method; Extraction comes with the SemiDICE solution it starts from."""
    f = by_name(config.divergence)

    def semidice_and_extraction(logs: LoggedMDP, alpha: jax.Array) -> dict[str, Solution]:
        semi = tabular.semidice(logs, alpha, f)
        return {"SemiDICE": semi, "Extraction": tabular.extraction(logs, semi.w)}

    return [
        (config.alphas, lambda logs, alpha: {"OptiDICE": tabular.optidice(logs, alpha, f)}),
        (config.alphas, semidice_and_extraction),
        (config.betas, lambda logs, beta: {"f-DVL": tabular.f_dvl(logs, beta, f)}),
        (config.betas, lambda logs, beta: {"ODICE": tabular.odice(logs, beta, divergence=f)}),
        (config.alphas, lambda logs, alpha: {"SQL": tabular.sql(logs, alpha)}),
        (config.alphas, lambda logs, alpha: {"XQL": tabular.xql(logs, alpha)}),
    ]


def measure(problem: Problem, solution: Solution) -> Measures:
    value = tabular.expected(problem.truth, solution.policy, problem.truth.rewards)
    return Measures(
        value=value,
        normalised=problem.normalise(value),
        flow_violation=tabular.flow_violation(problem.logs, solution.w),
        policy_violation=tabular.policy_violation(problem.logs, solution.w),
        status=solution.status,
    )


def run(config: RandomMDPConfig) -> dict[str, Any]:
    """Computes the figure, writes it, and returns the summary. Ctrl-C keeps the runs that are done."""
    started = time.monotonic()
    out = files.output_directory(config.out)
    results, behaviour = compute(config)
    files.write_csv(out / "results.csv", COLUMNS, rows(results))
    summary = summarise(results, behaviour) | files.provenance(config, time.monotonic() - started)
    files.write_json(out / "summary.json", summary)
    with files.atomic(out / "figure.png") as path:
        draw(config, results, float(np.mean(behaviour)), path)
    terminal.print_table(
        f"Means over {summary['runs']} random MDPs; return (0 uniform, 1 optimal) from weak to strong regularisation",
        ("method", "return", "flow violation", "policy violation"),
        [_table_row(method, result) for method, result in results.items()],
    )
    total = sum(result.measures.status.size for result in results.values())
    print(f"{total - len(summary['not_converged']):,} of {total:,} solutions converged")
    terminal.print_claims(summary["claims"])
    terminal.print_written(out, ("results.csv", "summary.json", "figure.png"))
    return summary


class Result(NamedTuple):
    parameters: tuple[float, ...]
    measures: Measures
    """Each an array [runs, parameters]."""


def compute(config: RandomMDPConfig) -> tuple[dict[str, Result], np.ndarray]:
    """The result of each method, and the normalised return of the behaviour policy in each run."""
    with tabular.float64():
        make = jax.jit(jax.vmap(lambda run: make_problem(config, run)))
        programs = [(parameters, jax.jit(_over_problems(solve))) for parameters, solve in solvers(config)]
        chunks: list[dict[str, Result]] = []
        behaviours = []
        starts = range(0, config.runs, CHUNK)
        with terminal.progress(len(starts) * (1 + len(programs)), "steps") as advance:
            try:
                for start in starts:
                    problems = jax.block_until_ready(make(jnp.arange(start, start + CHUNK)))
                    advance(f"runs {start + 1}-{min(start + CHUNK, config.runs)}")
                    chunk: dict[str, Result] = {}
                    for parameters, program in programs:
                        measured = jax.device_get(program(problems, jnp.asarray(parameters)))
                        chunk |= {method: Result(parameters, measures) for method, measures in measured.items()}
                        advance(", ".join(measured))
                    chunks.append(chunk)
                    behaviours.append(np.asarray(problems.normalise(problems.behaviour)))
            except KeyboardInterrupt:
                if not chunks:
                    raise
                print(f"Interrupted: keeping the {len(chunks) * CHUNK} runs that are done.")
    runs = min(config.runs, len(chunks) * CHUNK)
    joined = {
        method: Result(
            first.parameters,
            Measures(
                *(np.concatenate(parts)[:runs] for parts in zip(*(c[method].measures for c in chunks), strict=True))
            ),
        )
        for method, first in chunks[0].items()
    }
    return joined, np.concatenate(behaviours)[:runs]


def _over_problems(solve: Callable[[LoggedMDP, Any], dict[str, Solution]]) -> Callable[..., dict[str, Measures]]:
    """The measures of a solver on a batch of problems [R] and of parameters [P], as arrays [R, P]."""

    def one(problem: Problem, parameter: jax.Array) -> dict[str, Measures]:
        return {method: measure(problem, solution) for method, solution in solve(problem.logs, parameter).items()}

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))


def _table_row(method: str, result: Result) -> tuple[str, ...]:
    def between(values: Numbers) -> str:
        means = values.mean(0)
        return f"{means.min():.1g} to {means.max():.1g}"

    measures = result.measures
    return (
        method,
        " ".join(f"{mean:.2f}".removeprefix("0") for mean in measures.normalised.mean(0)),
        between(measures.flow_violation),
        between(measures.policy_violation),
    )


def rows(results: dict[str, Result]) -> list[tuple[Any, ...]]:
    return [
        (run, method, parameter, *(float(m[run, i]) for m in measures[:4]), _ended(measures.status[run, i]))
        for method, (parameters, measures) in results.items()
        for i, parameter in enumerate(parameters)
        for run in range(len(measures.value))
    ]


def _ended(status: Numbers) -> str:
    return Status(int(status)).name.lower()


def summarise(results: dict[str, Result], behaviour: np.ndarray) -> dict[str, Any]:
    table = [
        {
            "method": method,
            "parameter": parameter,
            "return": float(measures.value[:, i].mean()),
            "normalised_return": float(measures.normalised[:, i].mean()),
            "normalised_return_se": float(measures.normalised[:, i].std() / np.sqrt(len(measures.normalised))),
            "flow_violation": float(measures.flow_violation[:, i].mean()),
            "policy_violation": float(measures.policy_violation[:, i].mean()),
            "converged": int((measures.status[:, i] == Status.CONVERGED).sum()),
        }
        for method, (parameters, measures) in results.items()
        for i, parameter in enumerate(parameters)
    ]
    exceptions = [
        {"method": method, "parameter": parameters[i], "run": int(run), "status": _ended(measures.status[run, i])}
        for method, (parameters, measures) in results.items()
        for run, i in np.argwhere(measures.status != Status.CONVERGED)
    ]
    return {
        "runs": len(behaviour),
        "behaviour_normalised_return": float(behaviour.mean()),
        "claims": claims(table),
        "not_converged": exceptions,
        "table": table,
    }


def claims(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's claims about Figure 1, each with its worst mean over the parameters."""

    def worst(pick: Callable[..., float], key: str, choose: Callable[[dict[str, Any]], bool]) -> float:
        return pick((row[key] for row in table if choose(row)), default=float("nan"))

    stationary = worst(max, "flow_violation", lambda row: row["method"] in ("OptiDICE", "Extraction"))
    policy = worst(
        max,
        "policy_violation",
        lambda row: row["method"] in ("SemiDICE", "SQL", "XQL") or (row["method"], row["parameter"]) == ("f-DVL", 0.5),
    )
    semi = worst(min, "flow_violation", lambda row: row["method"] == "SemiDICE" and row["parameter"] <= 0.1)
    return [
        {
            "claim": "OptiDICE and Extraction find stationary corrections: flow violation <= 1e-6",
            "worst": stationary,
            "holds": stationary <= 1e-6,
        },
        {
            "claim": "SemiDICE, SQL, XQL and f-DVL(0.5) find policy corrections: policy violation <= 1e-6",
            "worst": policy,
            "holds": policy <= 1e-6,
        },
        {
            "claim": "SemiDICE's is not a stationary correction: flow violation > 0.1 for α <= 0.1",
            "worst": semi,
            "holds": semi > 0.1,
        },
    ]


def draw(config: RandomMDPConfig, results: dict[str, Result], behaviour: float, path: Path) -> None:
    panels = (
        ("normalised", "Return (0 uniform, 1 optimal)"),
        ("flow_violation", "Bellman-flow violation"),
        ("policy_violation", "Policy-correction violation"),
    )
    positions = np.arange(len(config.alphas))
    with figures.figure(1, len(panels), width=13, height=4) as (fig, axes):
        for axis, (name, title) in zip(axes.ravel(), panels, strict=True):
            for method, result in results.items():
                figures.band(axis, positions, getattr(result.measures, name).T, method)
            axis.set_title(title)
            axis.set_xticks(positions, [f"{alpha:g}" for alpha in config.alphas])
            axis.set_xlabel("α")
            upper = axis.secondary_xaxis("top")
            upper.set_xticks(positions, [f"{beta:g}" for beta in config.betas])
            upper.set_xlabel("β (f-DVL, ODICE)")
        axes.ravel()[0].axhline(behaviour, color="grey", linestyle=":", linewidth=1)
        axes.ravel()[0].text(0, behaviour, "behaviour policy", color="grey", va="top", fontsize=8)
        for axis in axes.ravel()[1:]:
            axis.set_yscale("symlog", linthresh=1e-2)
            axis.set_ylim(bottom=0)
        fig.legend(*axes.ravel()[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(results))
        fig.savefig(path)
