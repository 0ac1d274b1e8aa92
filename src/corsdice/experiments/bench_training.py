"""How fast CORSDICE trains, the family and the paper's Algorithm 1, against what this machine's matrix products allow.

Each population runs in a process of its own, so that its peak memory is its own; the machine's limit is measured in
the same process, right before and after.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from corsdice.experiments.bench_configs import BenchTrainingConfig
from corsdice.report import terminal

if TYPE_CHECKING:
    from corsdice.data.dataset import Dataset

ALGORITHMS = ("corsdice", "corsdice-paper")
OBSERVATIONS, ACTIONS, EPISODES, HORIZON = 17, 6, 20, 1000


def run(config: BenchTrainingConfig) -> None:
    cases = [(algorithm, members) for algorithm in ALGORITHMS for members in config.populations]
    rows: list[dict[str, Any]] = []
    with terminal.progress(len(cases), "cases") as advance:
        for algorithm, members in cases:
            command = [sys.executable, "-m", __name__, algorithm, str(members), str(config.updates)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout))
            advance(f"{algorithm}, {members}")
    terminal.print_table(
        "Batch 256, networks 256 x 256, 17 observations, 6 actions, float32",
        ("algorithm", "members", "updates/s", "MFLOP each", "GFLOP/s", "256³ products", "ratio", "peak memory (MiB)"),
        [
            (
                row["algorithm"],
                str(row["members"]),
                f"{row['speed']:.1f}",
                f"{row['flops'] / 1e6:.0f}",
                f"{row['speed'] * row['flops'] / 1e9:.0f}",
                f"{row['limit'] / 1e9:.0f}",
                f"{row['speed'] * row['flops'] / row['limit']:.2f}",
                f"{row['memory']:.0f}",
            )
            for row in rows
        ],
    )
    print("MFLOP are those of the matrix products of one update; updates/s are of all members together.")


def measure(algorithm: str, members: int, updates: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from corsdice.training.run import Trainer, plan_of

    dataset = some_logs()
    options = {"steps": 100 * updates, "layer_norm": True}
    chunk = max(updates // members, 20)
    plan = plan_of(algorithm, dataset, [20.0], alphas=[0.3], seeds=members, chunk=chunk, options=options)
    trainer = Trainer(plan, dataset)
    trainer.advance()
    limits = [product_limit(jax, jnp)]
    speeds = []
    for _ in range(3):
        started = time.perf_counter()
        trainer.advance()
        speeds.append(plan.chunk * members / (time.perf_counter() - started))
        limits.append(product_limit(jax, jnp))
    return {
        "algorithm": algorithm,
        "members": members,
        "speed": statistics.median(speeds),
        "flops": update_flops(plan.config, OBSERVATIONS, ACTIONS),
        "limit": statistics.median(limits),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def some_logs() -> Dataset:
    """Of a walker's size, and of no meaning."""
    import numpy as np

    from corsdice.data.dataset import Dataset

    generator = np.random.default_rng(0)
    rows = EPISODES * HORIZON
    walk = generator.normal(size=(rows + 1, OBSERVATIONS)).astype(np.float32)
    timeouts = np.arange(rows) % HORIZON == HORIZON - 1
    return Dataset(
        walk[:-1],
        generator.uniform(-1, 1, (rows, ACTIONS)).astype(np.float32),
        generator.normal(size=rows).astype(np.float32),
        (generator.uniform(size=rows) < 0.1).astype(np.float32),
        walk[1:],
        np.zeros(rows, bool),
        timeouts,
    )


def update_flops(config: Any, observations: int, actions: int) -> float:
    """Matrix products of one update: a forward pass is 1, a pass that is differentiated 3 (less the first layer's)."""
    from corsdice.algorithms import family
    from corsdice.conditions import IMITATION_FEATURES, MULTIPLIER_FEATURES

    is_family = isinstance(config, family.Config)
    seen = observations + (MULTIPLIER_FEATURES if is_family else 0)

    def forward(inputs: int, outputs: int) -> float:
        sizes = (inputs, *config.widths, outputs)
        return sum(2.0 * config.batch_size * a * b for a, b in pairwise(sizes))

    def trained(inputs: int, outputs: int) -> float:
        return 3 * forward(inputs, outputs) - 2.0 * config.batch_size * inputs * config.widths[0]

    total = trained(seen, 1) + forward(seen, 1)  # ν(s), ν(s')
    total += config.critics * (trained(seen + actions, 1) + forward(seen + actions, 1))  # Q, target
    total += trained(seen, config.components * (1 + 2 * actions))  # the clone
    if is_family:
        total += trained(seen + IMITATION_FEATURES, actions)  # the improved actor
        total += config.critics * 2 * forward(seen + actions, 1)  # its target, differentiated by the action alone
    elif config.estimate == "networks":
        total += 4 * trained(observations, 1)  # A(s), μ(s), μ(s'), μ(s_0)
    return total


def product_limit(jax: Any, jnp: Any) -> float:
    """FLOP/s of products of 256 x 256 float32 matrices, many in one program."""
    products, size = 500, 256
    many = jax.jit(lambda x: jax.lax.fori_loop(0, products, lambda _, y: (y @ x) * 1e-2, x))
    x = jnp.ones((size, size))
    many(x).block_until_ready()
    started = time.perf_counter()
    many(x).block_until_ready()
    return products * 2 * size**3 / (time.perf_counter() - started)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
