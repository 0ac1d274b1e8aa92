"""The simulators of DSRL, each behind one function `make(task)` that gives Gymnasium's 5-tuple and `info["cost"]`.

A module here is imported only when its simulator is asked for; what it has to patch, and why, stands in it.
"""
