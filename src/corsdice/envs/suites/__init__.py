"""The simulators of DSRL, each behind one function `make(task)` that gives Gymnasium's 5-tuple and `info["cost"]`.

A module here imports its simulator, and patches it, only when a task is made; what it patches, and why, stands in it.
"""
