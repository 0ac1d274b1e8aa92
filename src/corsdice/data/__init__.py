"""Logged transitions: the Dataset, readers and writers, checks, profile and filters. Nothing is ever unpickled."""

from corsdice.data.checks import check
from corsdice.data.dataset import Dataset, Episodes, concatenate, dataset_from, select
from corsdice.data.formats import Columns, provenance, read, write
from corsdice.data.profile import Profile, profile

__all__ = [
    "Columns",
    "Dataset",
    "Episodes",
    "Profile",
    "check",
    "concatenate",
    "dataset_from",
    "profile",
    "provenance",
    "read",
    "select",
    "write",
]
