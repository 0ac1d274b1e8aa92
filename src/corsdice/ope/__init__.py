"""Off-policy evaluation: what a policy that has never been run would earn and cost, and how sure that is."""

from corsdice.ope.estimate import Diagnostics, EpisodeEstimate, Estimate, Interval, Sums
from corsdice.ope.evidence import Evidence, Question, ask, ask_function, evidence_of, standard_function
from corsdice.ope.verdict import Verdict, judge, preference

__all__ = [
    "Diagnostics",
    "EpisodeEstimate",
    "Estimate",
    "Evidence",
    "Interval",
    "Question",
    "Sums",
    "Verdict",
    "ask",
    "ask_function",
    "evidence_of",
    "judge",
    "preference",
    "standard_function",
]
