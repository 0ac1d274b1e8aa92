import jax
import numpy as np
import pytest

from corsdice.data import check, dataset_from, profile
from corsdice.errors import UserError


def test_episodes_and_their_first_observations(dataset, arrays):
    np.testing.assert_array_equal(dataset.episodes.starts, [0, 5, 8])
    np.testing.assert_array_equal(dataset.episodes.lengths, [5, 3, 4])
    np.testing.assert_array_equal(dataset.initial_observations, arrays["observations"][[0, 5, 8]])
    np.testing.assert_allclose(dataset.episodes.sums(dataset.rewards)[1], arrays["rewards"][5:8].sum(), rtol=1e-6)
    assert check(dataset) is dataset


def test_it_is_a_pytree(dataset):
    assert len(jax.tree.leaves(dataset)) == 7


def test_columns_of_one_number_and_float64_are_made_plain(arrays):
    wide = arrays | {
        name: arrays[name][:, None].astype(np.float64) for name in ("rewards", "costs", "terminals", "timeouts")
    }
    plain = dataset_from(wide)
    assert plain.rewards.shape == (12,)
    assert plain.terminals.dtype == bool
    assert plain.rewards.dtype == np.float32
    np.testing.assert_array_equal(plain.terminals, arrays["terminals"])


def test_a_termination_at_the_time_limit_is_a_termination(arrays):
    arrays["timeouts"][7] = True  # row 7 terminates
    dataset = dataset_from(arrays)
    assert dataset.terminals[7]
    assert not dataset.timeouts[7]


def test_a_last_episode_without_an_end_timed_out(arrays):
    arrays["timeouts"][-1] = False
    assert dataset_from(arrays).timeouts[-1]


def test_without_next_observations_the_next_row_is_taken_and_unknown_successors_left_out(arrays):
    full = dataset_from(arrays)
    del arrays["next_observations"]
    dataset = check(dataset_from(arrays))
    kept = np.delete(np.arange(12), [4, 11])  # the last rows of the episodes that timed out
    np.testing.assert_array_equal(dataset.observations, full.observations[kept])
    np.testing.assert_array_equal(np.flatnonzero(dataset.timeouts), [3, 9])
    np.testing.assert_array_equal(np.flatnonzero(dataset.terminals), [6])
    alive = ~dataset.terminals
    np.testing.assert_array_equal(dataset.next_observations[alive], full.next_observations[kept][alive])


def test_a_single_step_that_timed_out_needs_its_next_observation(arrays):
    del arrays["next_observations"]
    arrays["timeouts"][8] = True  # an episode of one step: row 8
    with pytest.raises(UserError, match="timeouts, row 8"):
        dataset_from(arrays)


def test_images_and_single_numbers_are_observations_too(arrays):
    for shape in ((), (4, 5)):
        changed = arrays | {name: np.zeros((12, *shape)) for name in ("observations", "next_observations")}
        dataset = dataset_from(changed)
        assert dataset.observations.shape == (12, *(shape or (1,)))
        check(dataset)
        assert profile(dataset).constant_observations == tuple(range(int(np.prod(shape)) if shape else 1))


BROKEN = {
    "missing costs": lambda a: a.pop("costs"),
    r"rewards has 11|has 12 rows but rewards has 11": lambda a: a.update(rewards=a["rewards"][:-1]),
    "actions holds object": lambda a: a.update(actions=np.array([None] * 12)),
    "observations holds <U": lambda a: a.update(observations=np.array([["x"]] * 12)),
    r"rewards has shape \(12, 2\)": lambda a: a.update(rewards=np.zeros((12, 2))),
    "terminals, row 3, is 2.0": lambda a: a.update(terminals=np.where(np.arange(12) == 3, 2.0, 0.0)),
    r"rows of shape \(2,\) and \(3,\)": lambda a: a.update(next_observations=a["next_observations"][:, :2]),
    "no rows": lambda a: a.update({name: array[:0] for name, array in a.items()}),
    "observations, row 6, column 1, is not a finite": lambda a: a["observations"].__setitem__((6, 1), np.nan),
    "rewards, row 2, is not a finite": lambda a: a["rewards"].__setitem__(2, np.inf),
    "costs, row 4, is -1": lambda a: a["costs"].__setitem__(4, -1),
    "costs are all zero": lambda a: a["costs"].__setitem__(slice(None), 0),
    "marks the end of an episode": lambda a: a.update(terminals=np.zeros(12, bool), timeouts=np.zeros(12, bool)),
    "next_observations, row 9, column 2, is not": lambda a: a["next_observations"].__setitem__((9, 2), 7),
    "actions, row 1, column 0, is 1.5, outside": lambda a: a["actions"].__setitem__((1, 0), 1.5),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_wrong_is_refused_by_name(arrays, message):
    BROKEN[message](arrays)
    with pytest.raises(UserError, match=message) as refusal:
        check(dataset_from(arrays), action_bounds=(-1, 1))
    assert "\n" not in str(refusal.value)


def test_a_dataset_without_costs_can_be_asked_for(arrays):
    arrays["costs"][:] = 0
    check(dataset_from(arrays), needs_cost=False)


def test_the_profile_counts_right(arrays):
    arrays["observations"][:, 2] = arrays["next_observations"][:, 2] = 3.0
    for name in ("observations", "actions"):
        arrays[name][10] = arrays[name][2]
    arrays["next_observations"][9] = arrays["observations"][10]
    arrays["costs"] = np.array([1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    shown = profile(check(dataset_from(arrays)), limits=(0, 2, 3))
    assert (shown.transitions, shown.episodes, shown.terminated) == (12, 3, 1)
    assert shown.safe_share == {"0": pytest.approx(1 / 3), "2": pytest.approx(2 / 3), "3": pytest.approx(2 / 3)}
    assert shown.episode_cost["most"] == 4
    assert shown.episode_cost["median"] == 2
    assert shown.length == {"least": 3, "lower quarter": 3.5, "median": 4, "upper quarter": 4.5, "most": 5}
    assert shown.duplicates == 1
    assert shown.constant_observations == (2,)
    assert shown.constant_actions == ()
    assert shown.costly_steps == 0.5
