"""A family that an experiment has trained, with its frontier: on disk with the run, so that it is traced once."""

from __future__ import annotations

from pathlib import Path

from corsdice.data.split import Split
from corsdice.policy_family import PolicyFamily, load_family
from corsdice.training import directory
from corsdice.training.run import Outcome
from corsdice.training.ship import Models, traced


def traced_once(run: Path, outcome: Outcome, parts: Split, models: Models) -> PolicyFamily:
    """The family of a run that has ended."""
    known = load_family(run / directory.FAMILY)
    if known.frontier.points:
        return known
    family = traced(outcome, parts, models)
    family.save(run / directory.FAMILY)
    return family
