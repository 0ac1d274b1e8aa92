"""Constrained tasks written in JAX: ground truth for every estimate, thousands of episodes a second."""

from corsdice.envs.collect import collect
from corsdice.envs.points import TASKS, task_by_name
from corsdice.envs.rollout import Rollout, Truth, evaluate, rollout
from corsdice.envs.task import Step, Task

__all__ = ["TASKS", "Rollout", "Step", "Task", "Truth", "collect", "evaluate", "rollout", "task_by_name"]
