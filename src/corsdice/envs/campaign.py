"""Logs of a task like those of DSRL: many agents, from safe to reckless, each sent on an errand, several at a time.

What they do is kept in PARTS, so that a campaign that was stopped goes on, and one that is over can be given more time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path

from corsdice.data.dataset import Dataset, concatenate
from corsdice.data.dsrl import find_dsrl_task
from corsdice.envs.errands import Errand, Progress, episodes_of, progress_of
from corsdice.envs.processes import simulators
from corsdice.errors import UserError

SHARES = (0.05, 0.15, 0.35, 0.7, 1.2)
"""Cost limits of the agents of a DSRL task, in parts of the largest cost in DSRL's data."""
PATIENCE = 1.0
"""Seconds between two looks at how far the errands are."""

Tell = Callable[[Sequence[Progress]], None]


def errands_for(
    env: str,
    parts: Path,
    seconds: float,
    workers: int,
    limits: Sequence[float] = (),
    seed: int = 0,
    steps: float = math.inf,
) -> list[Errand]:
    """One for each limit, or one for each worker where scripted drivers make the logs.

    The seconds are of the clock on the wall, and the errands share what all workers have; the steps are of each.
    """
    task = find_dsrl_task(env)
    if task and task.suite == "metadrive":
        return [
            Errand("drivers", env, task.max_cost, seed + 1000 * i, str(parts / f"drivers-{i}"), seconds, steps)
            for i in range(workers)
        ]
    if not limits and task:
        limits = [share * task.max_cost for share in SHARES]
    if not limits:
        raise UserError(f"--limits are needed: undiscounted costs of an episode for the agents of {env} to aim at")
    each = seconds * workers / len(limits)
    return [
        Errand("agent", env, limit, seed + i, str(parts / f"agent-{i}-{limit:g}"), each, steps)
        for i, limit in enumerate(limits)
    ]


def campaign(errands: Sequence[Errand], workers: int, tell: Tell = lambda progress: None) -> Dataset:
    """Carries the errands out and gives all their whole episodes."""
    todo = [errand for errand in errands if not errand.over(progress_of(errand))]
    if workers == 1:
        for errand in todo:
            carry_out(errand)
            tell([progress_of(each) for each in errands])
    elif todo:
        with simulators(min(workers, len(todo)), todo[0].env) as pool:
            waiting = {pool.submit(carry_out, errand) for errand in todo}
            while waiting:
                done, waiting = wait(waiting, PATIENCE)
                for future in done:
                    future.result()
                tell([progress_of(errand) for errand in errands])
    logs = [log for errand in errands for log in episodes_of(errand)]
    if not logs:
        raise UserError(f"no episode of {errands[0].env} ended in that time: give it more")
    return concatenate(logs)


def carry_out(errand: Errand) -> None:
    if errand.kind == "agent":
        from corsdice.envs.lagrangian import learn

        learn(errand)
    else:
        from corsdice.envs.drivers import drive

        drive(errand)
