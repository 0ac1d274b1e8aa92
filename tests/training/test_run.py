"""What a plan reads from the logs."""

import numpy as np
import pytest

from corsdice import envs
from corsdice.data.dataset import select
from corsdice.errors import UserError
from corsdice.training.run import horizon_of


def test_the_horizon_is_where_episodes_are_cut_off_or_where_all_end():
    assert horizon_of(envs.collect(envs.TASKS["point-ridge"], 0, 100)) == 100
    assert horizon_of(envs.collect(envs.TASKS["dispatch"], 0, 5)) == 24


def test_episodes_that_end_at_different_times_do_not_tell_the_horizon():
    logs = envs.collect(envs.TASKS["point-ridge"], 0, 100)
    fell = select(logs, np.flatnonzero(logs.terminals[logs.episodes.stops - 1]))
    with pytest.raises(UserError, match=r"no episode timed out, and they end after .* steps\): give --horizon"):
        horizon_of(fell)
