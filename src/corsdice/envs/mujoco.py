"""Gymnasium's MuJoCo walkers with a speed limit: each step faster than it costs 1, in `info["cost"]`.

    gymnasium.make("corsdice.envs.mujoco:corsdice/HopperVelocity-v0")

The bodies are those of version 4, on which the velocity tasks of DSRL and most published logs of these walkers rest;
version 5 has other rewards. The time limit is Gymnasium's own wrapper, so that termination and truncation stay apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from corsdice.errors import UserError

try:
    import gymnasium
except ImportError as error:
    raise UserError("gymnasium is not installed: pip install 'corsdice[mujoco]'") from error

HORIZON = 1000


@dataclass(frozen=True)
class VelocityTask:
    """A walker and the speed above which it costs."""

    name: str
    body: str
    """Gymnasium's name for it, without the version."""
    limit: float
    """In metres a second, as in DSRL."""

    @property
    def id(self) -> str:
        """What `gymnasium.make` takes, from any module."""
        return f"{__name__}:{self.registered}"

    @property
    def registered(self) -> str:
        return f"corsdice/{self.body}Velocity-v0"


VELOCITY_TASKS = {
    task.name: task
    for task in (
        VelocityTask("hopper", "Hopper", 0.7402),
        VelocityTask("walker2d", "Walker2d", 2.3415),
        VelocityTask("halfcheetah", "HalfCheetah", 3.2096),
    )
}


def velocity_task(name: str) -> VelocityTask:
    try:
        return VELOCITY_TASKS[name]
    except KeyError:
        raise UserError(f"unknown task {name!r}: choose one of {', '.join(VELOCITY_TASKS)}") from None


@contextmanager
def version_4_is_meant() -> Iterator[None]:
    """Leaves unsaid that it is not the latest, and that its HalfCheetah sets a deprecated `settotalmass`.

    Of that MuJoCo would also keep a log file, in whatever directory the process runs.
    """
    try:
        import mujoco
    except ImportError as error:
        raise UserError("mujoco is not installed: pip install 'corsdice[mujoco]'") from error
    said: list[str] = []
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*-v4 is out of date", category=DeprecationWarning)
            yield
    finally:
        mujoco.set_mju_user_warning(handler)
    for text in said:
        if "settotalmass" not in text:
            warnings.warn(f"MuJoCo: {text}", stacklevel=2)


class SpeedLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the cost of a step to what Gymnasium says of it."""

    def __init__(self, task: str, **options: Any) -> None:
        self.task = velocity_task(task)
        with version_4_is_meant():
            body = gymnasium.make(f"{self.task.body}-v4", **options)
        # Bare: the wrappers of `gymnasium.make` come round this one, once.
        super().__init__(body.unwrapped)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info["cost"] = float(info["x_velocity"] > self.task.limit)
        return observation, reward, terminated, truncated, info


for _task in VELOCITY_TASKS.values():
    gymnasium.register(
        _task.registered,
        entry_point="corsdice.envs.mujoco:SpeedLimit",
        max_episode_steps=HORIZON,
        kwargs={"task": _task.name},
    )
