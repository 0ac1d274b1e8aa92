"""Every simulator through one call, `make(name)`, with Gymnasium's 5-tuple and the cost in `info["cost"]`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from corsdice.data.dsrl import DsrlTask, find_dsrl_task
from corsdice.envs.embedded import TASKS
from corsdice.errors import UserError
from corsdice.imports import import_named

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

SUITES = {
    "bullet": "corsdice.envs.suites.bullet",
    "safety-gymnasium": "corsdice.envs.suites.safety",
    "metadrive": "corsdice.envs.suites.drive",
}
"""Imported when a task of it is asked for: they need Gymnasium, which is an extra."""


def make(name: str) -> Env:
    """An embedded task, a task of DSRL by any of its names, a Gymnasium id, or module:factory.

    A factory is called without arguments. Time limits truncate; only the task itself terminates.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise UserError(
            f"{name} needs Gymnasium, which is not installed: pip install 'corsdice[gym]', or `make sim` for DSRL's"
        ) from error
    if name in TASKS:
        return gymnasium.make(f"corsdice.envs.gym:corsdice/{name}-v0")
    if task := find_dsrl_task(name):
        return gymnasium.wrappers.TimeLimit(_of_suite(task), task.horizon)
    if ":" in name and name.partition(":")[2].isidentifier():
        env = import_named(name)()
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"{name}() gives {type(env).__name__}, not a gymnasium.Env")
        return env
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"cannot make {name}: {str(error).splitlines()[0]}") from error


def _of_suite(task: DsrlTask) -> Env:
    with warnings.catch_warnings():
        # Their spaces are float32 boxes with the bounds of float64.
        warnings.filterwarnings("ignore", message="overflow encountered in cast", category=RuntimeWarning)
        return import_module(SUITES[task.suite]).make(task)


def alone_in_its_process(name: str) -> bool:
    """Whether two of it cannot be alive at once in one process."""
    task = find_dsrl_task(name)
    return task is not None and task.suite == "metadrive"
