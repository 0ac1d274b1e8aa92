"""Off-policy evaluation: what a policy that has never been run would earn and cost, and how sure that is."""

from corsdice.ope.extraction import Estimate, Interval, estimator
from corsdice.ope.verdict import Verdict, judge

__all__ = ["Estimate", "Interval", "Verdict", "estimator", "judge"]
