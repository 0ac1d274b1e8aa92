"""How exact SemiDICE + Extraction grow with the number of states.

Each size runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

from corsdice.experiments.bench_configs import BenchTabularConfig
from corsdice.report import terminal


def run(config: BenchTabularConfig) -> None:
    rows = []
    with terminal.progress(len(config.states), "sizes") as advance:
        for states in config.states:
            command = [sys.executable, "-m", __name__, str(states), str(config.repeats)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
            advance(f"{states} states")
    terminal.print_table(
        "Exact SemiDICE + Extraction, 4 actions, 4 successors, γ = 0.95, α = 0.01",
        ("states", "first call (s)", "then (s)", "Newton steps", "residual", "flow violation", "peak memory (MiB)"),
        [
            (
                f"{row['states']:,}",
                f"{row['first']:.2f}",
                f"{row['then']:.4f}",
                str(row["iterations"]),
                f"{row['residual']:.1e}",
                f"{row['flow']:.1e}",
                f"{row['memory']:.0f} (+{row['memory'] - row['baseline']:.0f})",
            )
            for row in rows
        ],
    )
    print("Peak memory is that of a process of its own; in brackets what the problem added to Python and JAX.")


def measure(states: int, repeats: int) -> dict[str, float]:
    import jax
    import numpy as np

    from corsdice import tabular

    generator = np.random.default_rng(0)
    rewards = np.zeros((states, 4))
    rewards[-1] = 1.0
    with tabular.float64():
        jax.block_until_ready(jax.numpy.zeros(1))
        baseline = _peak_memory()
        mdp = tabular.make_mdp(
            successors=generator.integers(0, states, (states, 4, 4)),
            probabilities=generator.dirichlet(np.ones(4), (states, 4)),
            rewards=rewards,
            initial=np.r_[1.0, np.zeros(states - 1)],
            discount=0.95,
        )
        logs = tabular.logged(mdp, tabular.mixed_behaviour(mdp))

        def solve() -> tuple[tabular.Solution, tabular.Solution]:
            semi = tabular.semidice(logs, 0.01)
            both: tuple[tabular.Solution, tabular.Solution] = jax.block_until_ready(
                (semi, tabular.extraction(logs, semi.w))
            )
            return both

        seconds = []
        for _ in range(1 + repeats):
            started = time.perf_counter()
            semi, extracted = solve()
            seconds.append(time.perf_counter() - started)
    return {
        "states": states,
        "first": seconds[0],
        "then": statistics.median(seconds[1:]),
        "iterations": int(semi.iterations),
        "residual": float(semi.residual),
        "flow": float(extracted.residual),
        "baseline": baseline,
        "memory": _peak_memory(),
    }


def _peak_memory() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
