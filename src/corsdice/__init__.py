"""Offline constrained reinforcement learning: a safe policy, and an honest estimate of its cost, from logs alone.

Nothing heavy is imported here, so that the command line answers at once: the names below are imported when they are
first used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "CORSDICE": "corsdice.api",
    "Learner": "corsdice.api",
    "CostLimit": "corsdice.costs",
    "Policy": "corsdice.policy",
    "PolicyFamily": "corsdice.policy_family",
    "load": "corsdice.policy_family",
    "read": "corsdice.data",
}

__all__ = ["CORSDICE", "CostLimit", "Learner", "Policy", "PolicyFamily", "load", "read"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'corsdice' has no attribute {name!r}")
