"""Small datasets, and how to compare them."""

import numpy as np


def make_arrays(episodes=(5, 3, 4), observation=(3,), action=(2,), seed=0):
    """Episodes of the given lengths: the second terminates, the others time out."""
    generator = np.random.default_rng(seed)
    observations, following, terminals, timeouts = [], [], [], []
    for index, length in enumerate(episodes):
        path = generator.normal(size=(length + 1, *observation)).astype(np.float32)
        observations.append(path[:-1])
        following.append(path[1:])
        ends = np.arange(length) == length - 1
        terminals.append(ends & (index == 1))
        timeouts.append(ends & (index != 1))
    rows = sum(episodes)
    return {
        "observations": np.concatenate(observations),
        "actions": generator.uniform(-1, 1, (rows, *action)).astype(np.float32),
        "rewards": generator.normal(size=rows).astype(np.float32),
        "costs": generator.integers(0, 2, rows).astype(np.float32),
        "next_observations": np.concatenate(following),
        "terminals": np.concatenate(terminals),
        "timeouts": np.concatenate(timeouts),
    }


def assert_same(dataset, other):
    for name, array, expected in zip(dataset._fields, dataset, other, strict=True):
        np.testing.assert_array_equal(array, expected, err_msg=name)
        assert array.dtype == expected.dtype, name
