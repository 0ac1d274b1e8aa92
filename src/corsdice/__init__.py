"""Offline constrained reinforcement learning: a safe policy, and an honest estimate of its cost, from logs alone.

Nothing heavy is imported here, so that the command line answers at once; import the room you need, for example
`corsdice.tabular` or `corsdice.divergences`.
"""

__version__ = "0.1.0"
