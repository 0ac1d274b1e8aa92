"""Gymnasium environments in which something goes wrong; worker processes find them by the name of this module."""

import os
import time
from pathlib import Path

import gymnasium
import numpy as np

DIRECTORY = "CORSDICE_TEST_DIRECTORY"
"""An environment variable: where the processes leave word for each other."""


class Brief(gymnasium.Env):
    """Three steps that earn 1 and cost 2; it counts the environments that are open."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    now_open = most_open = 0

    def __init__(self):
        Brief.now_open += 1
        Brief.most_open = max(Brief.most_open, Brief.now_open)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), 1.0, self.steps == 3, False, {"cost": 2.0}

    def close(self):
        Brief.now_open -= 1


class Costless(Brief):
    """Forgets the cost of its second step."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, ({} if self.steps == 2 else info)


class Unbounded(Brief):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0] + np.float32(np.nan), {}


class Priceless(Brief):
    """The cost of its second step is no number."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, ({"cost": np.nan} if self.steps == 2 else info)


class Priced(Brief):
    """Its second step earns infinitely much."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, (np.inf if self.steps == 2 else reward), *rest


class Stuck(Brief):
    """One process never ends its first step; another, once that is so, does `amiss`."""

    def step(self, action):
        mark = Path(os.environ[DIRECTORY]) / "stuck"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return self.amiss(action)
        time.sleep(60)
        raise AssertionError("nobody ended this process")


class StuckAndCostless(Stuck):
    def amiss(self, action):
        *rest, _ = Brief.step(self, action)
        return *rest, {}


class StuckAndDead(Stuck):
    def amiss(self, action):
        os._exit(7)


class StuckTwice(Stuck):
    def amiss(self, action):
        time.sleep(60)
        raise AssertionError("nobody ended this process")


for _kind in (Brief, Costless, Unbounded, Priceless, Priced, StuckAndCostless, StuckAndDead, StuckTwice):
    gymnasium.register(f"awkward/{_kind.__name__}-v0", entry_point=_kind, disable_env_checker=True)


class Slalom(gymnasium.Env):
    """Earns what the action is, and above one half it costs 1; sees noise and the time."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def _seen(self):
        return np.array([self.np_random.normal(), 0.1 * self.steps])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action):
        self.steps += 1
        return self._seen(), float(action[0]), False, False, {"cost": float(action[0] > 0.5)}


def slalom():
    return gymnasium.wrappers.TimeLimit(Slalom(), 10)
