"""How fast a score model trains, against what matrix products of this machine allow, and what an action costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from corsdice.experiments.bench_configs import BenchDiffusionConfig
from corsdice.experiments.bench_training import ACTIONS, OBSERVATIONS, product_limit
from corsdice.report import terminal

ROWS, PIECES = 20_000, 5
WIDTHS = (256, 256)
"""Of the critics that choose."""


def run(config: BenchDiffusionConfig) -> None:
    speed, limit = training_speed(config)
    work = update_flops(config)
    terminal.print_table(
        f"Score model, {config.blocks} blocks of {config.width}, {OBSERVATIONS} observations, {ACTIONS} actions",
        ("batch", "updates/s", "MFLOP each", "GFLOP/s", "256³ products", "ratio"),
        [
            (
                str(config.batch_size),
                f"{speed:.1f}",
                f"{work / 1e6:.0f}",
                f"{speed * work / 1e9:.0f}",
                f"{limit / 1e9:.0f}",
                f"{speed * work / limit:.2f}",
            )
        ],
    )
    terminal.print_table(
        f"Milliseconds a call, {config.solver_steps} predictions from noise to an action",
        ("rows", "candidates", "resampled", "guided", "resampled, a row"),
        [
            (str(rows), str(candidates), f"{resampled:.2f}", f"{guided:.2f}", f"{resampled / rows:.3f}")
            for rows in config.rows
            for candidates in config.candidates
            for resampled, guided in [acting_times(config, rows, candidates)]
        ],
    )
    print("A call is one compiled program: noise, predictions, values, and the choice.")


def training_speed(config: BenchDiffusionConfig) -> tuple[float, float]:
    """Updates a second, and the FLOP/s of matrix products in between: medians of short pieces in turn."""
    import jax
    import jax.numpy as jnp

    from corsdice.diffusion.score import begin, fit_chunk

    key = jax.random.key(0)
    observations = jax.random.normal(key, (ROWS, OBSERVATIONS))
    actions = jax.random.uniform(key, (ROWS, ACTIONS), minval=-1)
    network = diffused(config).network
    fit = begin(network, key, observations, actions)

    def chunk() -> Any:
        steps, batch = config.updates, config.batch_size
        return fit_chunk(network, steps, batch, fit, observations, actions, jnp.int32(0), steps, 1e-3, key)

    pieces = [(config.updates / timed(chunk), product_limit(jax, jnp)) for _ in range(PIECES)]
    speeds, limits = zip(*pieces, strict=True)
    return statistics.median(speeds), statistics.median(limits)


def update_flops(config: BenchDiffusionConfig) -> float:
    """Matrix products of one update: a pass that is differentiated is 3 forward ones, less the first layers'."""
    network = diffused(config).network
    width, half = network.width, network.blocks // 2
    condition, time_size = network.condition_size, network.time_size
    added = network.blocks * width
    first = OBSERVATIONS * condition + time_size * time_size + ACTIONS * width
    others = condition**2 + (condition + time_size) * added + (2 * network.blocks + half) * width**2 + width * ACTIONS
    return 2.0 * config.batch_size * (2 * first + 3 * others)


def acting_times(config: BenchDiffusionConfig, rows: int, candidates: int) -> tuple[float, float]:
    """Milliseconds of a call that resamples, and of one that guides and selects."""
    import jax

    from corsdice.diffusion.actors import Guided, Resampled

    observations = jax.random.normal(jax.random.key(0), (rows, OBSERVATIONS))
    times = []
    for actor in (
        Resampled(diffused(config), WIDTHS, candidates=candidates),
        Guided(diffused(config), WIDTHS, candidates=candidates),
    ):
        params, draw = actor.init(jax.random.key(1), observations), jax.jit(actor.draw)
        key = jax.random.key(2)
        times.append(1000 * timed(lambda draw=draw, params=params, key=key: draw(params, observations, key)))  # type: ignore[misc]
    return times[0], times[1]


def diffused(config: BenchDiffusionConfig) -> Any:
    from corsdice.diffusion.actors import Diffused

    return Diffused(ACTIONS, config.width, config.blocks, steps=config.solver_steps)


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call that has been compiled, the median of three."""
    import jax

    jax.block_until_ready(call())
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
