"""The tasks that need no simulator but JAX, by name."""

from __future__ import annotations

from corsdice.envs.battery import HOME_BATTERY
from corsdice.envs.dispatch import DISPATCH
from corsdice.envs.points import POINTS
from corsdice.envs.task import Task
from corsdice.errors import UserError

TASKS = {task.name: task for task in (*POINTS, HOME_BATTERY, DISPATCH)}


def task_by_name(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}: choose one of {', '.join(TASKS)}")
    return TASKS[name]
