"""Simulators: constrained tasks written in JAX, thousands of episodes a second, and those of others by `make`."""

from corsdice.envs.collect import collect
from corsdice.envs.embedded import TASKS, task_by_name
from corsdice.envs.rollout import Rollout, Truth, evaluate, rollout
from corsdice.envs.simulators import make
from corsdice.envs.task import Step, Task

__all__ = ["TASKS", "Rollout", "Step", "Task", "Truth", "collect", "evaluate", "make", "rollout", "task_by_name"]
