"""MetaDrive 0.4.3 (Li et al. 2022) with the maps, traffic and costs of DSRL's nine driving tasks.

Patched: it fetches models and textures when it starts, which driving without pictures never uses.

Only one of them may be alive in a process. Closing it makes room for the next.
"""

from __future__ import annotations

import logging
import os
import re
from functools import cache
from typing import Any

import gymnasium
import numpy as np

from corsdice.data.dsrl import DsrlTask
from corsdice.errors import UserError

ROADS = {"easy": ("SCS", 0), "medium": ("XST", 100), "hard": ("TRO", 200)}
"""The blocks of each map (straight, curve, crossing, T, roundabout, ramp out) and the seed it is drawn with."""
DENSITY = {"sparse": 0.1, "mean": 0.15, "dense": 0.2}
"""Of the traffic."""
LIDAR = slice(-240, None)
"""The part of an observation that holds distances, in units of the range."""


def make(task: DsrlTask) -> gymnasium.Env[Any, Any]:
    road, traffic = re.fullmatch("(easy|medium|hard)(sparse|mean|dense)", task.task).groups()  # type: ignore[union-attr]
    blocks, seed = ROADS[road]
    return _drive()(
        {
            "map_config": {"type": "block_sequence", "config": blocks},
            "start_seed": seed,
            "num_scenarios": 1,
            "traffic_density": DENSITY[traffic],
            "traffic_mode": "hybrid",
            "random_traffic": False,  # which here means that it can be seeded; `Drive` seeds it anew for each episode
            "accident_prob": 0.0,
            "crash_vehicle_penalty": 0.0,
            "horizon": task.horizon,
            "log_level": logging.CRITICAL,
        }
    )


@cache
def _drive() -> Any:
    """The class of the environments, made where it is used: its base comes with the simulator."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        from metadrive.engine.base_engine import BaseEngine
        from metadrive.envs import SafeMetaDriveEnv
    except ImportError as error:
        raise UserError(f"{error.name} is not installed: `make sim` installs the simulators") from error

    BaseEngine.try_pull_asset = staticmethod(lambda: None)

    class Drive(SafeMetaDriveEnv, gymnasium.Env[Any, Any]):  # type: ignore[misc]
        """Reaching the destination, a crash and leaving the road terminate; the horizon truncates."""

        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config)
            self._traffic = np.random.default_rng()

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            # MetaDrive's own seed is the number of a map, of which there is one.
            if seed is not None:
                self._traffic = np.random.default_rng(seed)
            return super().reset()

        def _reset_global_seed(self, seed: int | None = None) -> None:
            """Draws the traffic of each episode anew, as DSRL does, but so that it can be repeated."""
            super()._reset_global_seed(seed)
            self.engine.traffic_manager.seed(int(self._traffic.integers(2**31)))

        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            observation, reward, _, _, info = super().step(np.asarray(action, float))
            terminated = bool(info["arrive_dest"] or info["crash"] or info["out_of_road"])
            info["cost"] += max(0.0, 0.01 * (info["velocity"] - 10))
            info["cost"] += 0.01 * max(0.0, 0.1 - float(observation[LIDAR].min())) ** 2
            return observation, float(reward), terminated, bool(info["max_step"]) and not terminated, info

    return Drive
