"""Logged transitions: the Dataset, its readers and writers, its checks and its profile. Nothing is ever unpickled."""

from corsdice.data.checks import check
from corsdice.data.dataset import Dataset, Episodes, dataset_from
from corsdice.data.formats import Columns, read, write
from corsdice.data.profile import Profile, profile

__all__ = ["Columns", "Dataset", "Episodes", "Profile", "check", "dataset_from", "profile", "read", "write"]
