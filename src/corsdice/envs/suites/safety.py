"""Safety-Gymnasium 1.0 (Ji et al. 2023) on current Python, NumPy and Gymnasium.

Its pins (gymnasium 0.28.1, mujoco 2.3.3, pygame 2.1.0, numpy < 1.24 through gymnasium-robotics) cannot be installed
with Python 3.11, but its tasks run without them:

- The package's `__init__` imports vector environments, wrappers and multi-agent tasks that need modules Gymnasium 1.0
  removed. None is needed here, so the package is entered without it, and the tasks are imported directly.
- Python 3.11 refuses an unhashable default of a dataclass field, and some defaults here are arrays.
- NumPy 2.4 refuses an array of one element as an index, which the agents give to `model.jnt`.
- Every reset of a navigation task builds its world anew, and with it 24 MB of pictures of a starry sky. With a plain
  sky a reset takes .1 s instead of 4; what happens below it is the same to the last bit.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from corsdice.data.dsrl import DsrlTask
from corsdice.envs.mujoco import version_4_is_meant
from corsdice.errors import UserError


def make(task: DsrlTask) -> gymnasium.Env[Any, Any]:
    _enter()
    plain = task.id.replace("Gymnasium", "")
    if velocity := re.match(r"Safety(\w+)Velocity-v1", plain):
        body = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", velocity[1]).lower()
        module = import_module(f"safety_gymnasium.tasks.safe_velocity.safety_{body}_velocity_v1")
        with version_4_is_meant():
            env = getattr(module, f"Safety{velocity[1]}VelocityEnv")()
    else:
        (agent,) = re.findall(r"Safety(Point|Car)", plain)
        env = import_module("safety_gymnasium.builder").Builder(plain, config={"agent_name": agent})
    return CostInInfo(env)


class CostInInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Safety-Gymnasium's 6-tuple, cost third, as Gymnasium's 5-tuple."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        # The agents multiply the array that they are given.
        taken: Any = self.env.step(np.array(action, float))
        observation, reward, cost, terminated, truncated, info = taken
        return observation, reward, terminated, truncated, info | {"cost": float(cost)}


def _enter() -> None:
    """Makes `safety_gymnasium.builder` and the velocity tasks importable."""
    if sys.modules.get("safety_gymnasium"):
        return
    spec = find_spec("safety_gymnasium")
    if spec is None:
        raise UserError("safety-gymnasium is not installed: `make sim` installs the simulators")
    sys.modules["safety_gymnasium"] = module_from_spec(spec)  # without running its __init__
    try:
        with _array_defaults():
            import_module("safety_gymnasium.builder")
    except BaseException as error:
        for name in [name for name in sys.modules if name.partition(".")[0] == "safety_gymnasium"]:
            del sys.modules[name]
        if isinstance(error, ModuleNotFoundError):
            raise UserError(f"{error.name} is not installed: `make sim` installs the simulators") from error
        raise
    _index_joints_by_numbers()
    _plain_sky()


@contextmanager
def _array_defaults() -> Iterator[None]:
    """While it lasts, a dataclass may have arrays as defaults; each instance gets a copy."""
    plain: Any = dataclasses.dataclass

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        for name, value in list(vars(cls).items()):
            if name in inspect.get_annotations(cls) and isinstance(value, np.ndarray):
                setattr(cls, name, dataclasses.field(default_factory=value.copy))
        return plain(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = plain


def _index_joints_by_numbers() -> None:
    from mujoco import MjModel

    plain = MjModel.jnt

    def jnt(model: Any, index: Any) -> Any:
        return plain(model, int(index[0]) if isinstance(index, np.ndarray) else index)

    MjModel.jnt = jnt


def _plain_sky() -> None:
    """The world reads its assets through its own name `yaml`: they are read once, and the pictures left out."""
    world: Any = import_module("safety_gymnasium.world")
    yaml = world.yaml

    @cache
    def read(path: str) -> Any:
        assets = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        assets["textures"]["skybox"] = {"@type": "skybox", "@builtin": "flat", "@width": "8", "@height": "8"}
        return assets

    world.yaml = SimpleNamespace(load=lambda file, Loader: deepcopy(read(file.name)), FullLoader=None)
