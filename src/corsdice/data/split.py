"""Logs in three parts, by whole episodes: to train on, to choose a policy by, and to judge the one that was chosen.

An estimate on episodes that a policy was trained on is flattered, and so is one on episodes that it was chosen by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corsdice.data.dataset import Dataset, concatenate
from corsdice.errors import UserError


class Split(NamedTuple):
    train: Dataset
    choose: Dataset
    judge: Dataset

    @property
    def held_out(self) -> Dataset:
        """All that nothing is trained on, for where nothing is chosen."""
        return concatenate([self.choose, self.judge])


def split(dataset: Dataset, holdout: float) -> Split:
    """At random but always the same; the share `holdout` of the episodes is halved between choosing and judging."""
    if not 0 < holdout < 1:
        raise UserError(f"--holdout must be between 0 and 1, got {holdout}")
    episodes = dataset.episodes
    count = len(episodes.starts)
    held = round(holdout * count)
    if held < 2 or held >= count:
        raise UserError(
            f"{count} episodes cannot be split with --holdout {holdout:g}: "
            "to train, to choose and to judge each need at least one; give another share, or more episodes"
        )
    part = np.zeros(count, int)
    order = np.random.default_rng(0).permutation(count)
    part[order[:held]] = 1
    part[order[: held // 2]] = 2
    rows = np.repeat(part, episodes.lengths)
    return Split(*(Dataset(*(column[rows == number] for column in dataset)) for number in range(3)))
