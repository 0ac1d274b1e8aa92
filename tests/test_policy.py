"""A policy as a file pair: what it gives back, and what it refuses."""

import json

import jax
import numpy as np
import pytest

from corsdice.algorithms.logs import Units
from corsdice.errors import UserError
from corsdice.networks import Actor
from corsdice.policy import Policy, PolicyParams, load

LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([1.0, 0.5], np.float32)


def make_policy(observation=(3,), action=(2,), squash=False, seed=0):
    """Random numbers everywhere, with actions in [LOW, HIGH], repeated over the action's columns."""
    columns, actions = int(np.prod(observation)), int(np.prod(action))
    actor = Actor(actions, (8,), 3, squash)
    keys = iter(jax.random.split(jax.random.key(seed), 100))
    variables = actor.init(next(keys), np.zeros((1, columns), np.float32))
    variables = jax.tree.map(lambda leaf: np.asarray(leaf + jax.random.normal(next(keys), leaf.shape)), variables)
    generator = np.random.default_rng(seed)
    low, high = np.resize(LOW, actions), np.resize(HIGH, actions)
    number = np.float32(1.5).reshape(())
    units = Units(
        generator.normal(size=columns).astype(np.float32),
        generator.uniform(0.5, 2, columns).astype(np.float32),
        (low + high) / 2,
        (high - low) / 2,
        *[np.asarray(number)] * 4,
    )
    about = {"observation_shape": list(observation), "action_shape": list(action), "algorithm": "bc-all"}
    return Policy(actor, PolicyParams(variables, units), about)


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture
def saved(policy, tmp_path):
    return policy.save(tmp_path / "policy").with_suffix("")


def observations(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)


def refusal(call, *arguments, **options):
    with pytest.raises(UserError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("squash", [False, True])
def test_what_is_loaded_is_what_was_saved_bit_for_bit(squash, tmp_path):
    policy = make_policy(squash=squash)
    written = policy.save(tmp_path / "new" / "seed0-alpha0.3-limit40")
    assert written == tmp_path / "new" / "seed0-alpha0.3-limit40.json"
    loaded = load(written)
    assert loaded.actor == policy.actor
    assert loaded.about == policy.about
    jax.tree.map(np.testing.assert_array_equal, loaded.params, policy.params)
    rows = observations(50, 3)
    np.testing.assert_array_equal(loaded.seed(5).predict(rows), policy.seed(5).predict(rows))
    again = loaded.save(tmp_path / "again")
    for suffix in (".json", ".safetensors"):
        assert written.with_name(written.stem + suffix).read_bytes() == again.with_suffix(suffix).read_bytes()


def test_a_path_may_name_either_file_or_neither(saved):
    for path in (saved, f"{saved}.json", f"{saved}.safetensors"):
        assert load(path).about["algorithm"] == "bc-all"


def test_one_observation_and_many_keep_their_leading_shape(policy):
    assert policy.predict(observations(3)).shape == (2,)
    assert policy.predict(observations(7, 3)).shape == (7, 2)
    assert policy.predict(observations(4, 5, 3)).shape == (4, 5, 2)
    assert policy.predict(observations(0, 3)).shape == (0, 2)
    assert policy.predict([0.0, 1.0, 2.0]).shape == (2,)
    assert policy.predict(observations(7, 3)).dtype == np.float32


def test_observations_and_actions_of_more_dimensions_keep_their_shapes(tmp_path):
    policy = load(make_policy(observation=(2, 3), action=(2, 2)).save(tmp_path / "policy"))
    assert policy.predict(observations(2, 3)).shape == (2, 2)
    assert policy.predict(observations(5, 2, 3)).shape == (5, 2, 2)
    flat = Policy(policy.actor, policy.params, policy.about | {"observation_shape": [6], "action_shape": [4]})
    rows = observations(5, 2, 3)
    flattened = flat.seed(0).predict(rows.reshape(5, 6))
    np.testing.assert_array_equal(policy.seed(0).predict(rows).reshape(5, 4), flattened)


@pytest.mark.parametrize("squash", [False, True])
def test_actions_stay_within_the_logged_bounds(squash):
    actions = make_policy(squash=squash).seed(0).predict(observations(2000, 3))
    rounding = 1e-6  # of shift ± scale in float32
    assert (actions >= LOW - rounding).all()
    assert (actions <= HIGH + rounding).all()
    assert (actions.min(0) < LOW + 0.1).all()
    assert (actions.max(0) > HIGH - 0.1).all()


def several(policy, rows, calls=3):
    return np.stack([policy.predict(rows) for _ in range(calls)])


def test_every_call_draws_anew_and_a_seed_makes_the_calls_repeatable(policy):
    rows = observations(20, 3)
    first = several(policy.seed(1), rows)
    assert len(np.unique(first, axis=0)) == 3
    np.testing.assert_array_equal(several(policy.seed(1), rows), first)
    assert (several(policy.seed(2), rows) != first).any()
    assert policy.seed(1) is policy


def test_without_a_seed_no_two_policies_draw_alike():
    rows = observations(20, 3)
    assert (make_policy().predict(rows) != make_policy().predict(rows)).any()


def test_equal_policies_may_have_drawn_differently(policy):
    same = Policy(policy.actor, policy.params, policy.about)
    same.predict(observations(3))
    assert same == policy
    assert "generator" not in repr(policy)


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 2), (5, 4)])
def test_observations_of_another_shape_are_refused(shape, policy):
    message = refusal(policy.predict, np.zeros(shape, np.float32))
    assert "shape (3,)" in message
    assert str(shape) in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_observations_that_are_not_finite_are_refused(value, policy):
    rows = observations(4, 3)
    rows[2, 1] = value
    assert "finite" in refusal(policy.predict, rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["actor", "units"])
def test_a_policy_that_is_not_finite_is_refused(part, value, policy, tmp_path):
    """One number of one array is enough."""

    def spoilt(leaf):
        leaf = np.array(leaf)
        leaf.flat[-1:] = value
        return leaf

    leaves, tree = jax.tree.flatten(getattr(policy.params, part))
    params = policy.params._replace(**{part: jax.tree.unflatten(tree, [*leaves[:-1], spoilt(leaves[-1])])})
    path = Policy(policy.actor, params, policy.about).save(tmp_path / "spoilt")
    assert "spoilt.safetensors has numbers that are not finite" in refusal(load, path)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_missing_file_is_named(suffix, saved):
    saved.with_suffix(suffix).unlink()
    assert f"policy{suffix}" in refusal(load, saved)


@pytest.mark.parametrize("content", [b"", b"not numbers at all", b"\xff" * 64, b"\x80\x04K\x01."])
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_file_is_named(suffix, content, saved):
    saved.with_suffix(suffix).write_bytes(content)
    assert f"policy{suffix}" in refusal(load, saved)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_file_cut_short_is_named(suffix, kept, saved):
    path = saved.with_suffix(suffix)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert f"policy{suffix}" in refusal(load, saved)


def changed(saved, change):
    path = saved.with_suffix(".json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("corsdice_policy"),
        lambda content: content.pop("actor"),
        lambda content: content.pop("about"),
        lambda content: content["about"].pop("observation_shape"),
        lambda content: content["about"].pop("action_shape"),
        lambda content: content["actor"].pop("widths"),
        lambda content: content["actor"].update(widths="wide"),
        lambda content: content["actor"].update(widths=[-8]),
        lambda content: content["actor"].update(components=0),
        lambda content: content["actor"].update(actions="two"),
        lambda content: content["about"].update(action_shape=[5]),
        lambda content: content.update(about=7),
    ],
    ids=[
        "no format",
        "no actor",
        "no about",
        "no observation shape",
        "no action shape",
        "no widths",
        "widths of text",
        "negative width",
        "no components",
        "actions of text",
        "another action shape",
        "about is no object",
    ],
)
def test_a_description_that_does_not_make_sense_is_named(change, saved):
    changed(saved, change)
    assert "policy." in refusal(load, saved)


@pytest.mark.parametrize("content", ["[]", "7", '"policy"', "null"])
def test_json_that_is_no_description_is_named(content, saved):
    saved.with_suffix(".json").write_text(content)
    assert "policy.json" in refusal(load, saved)


def test_another_format_is_told(saved):
    changed(saved, lambda content: content.update(corsdice_policy=99))
    assert "has format 99, this version reads 2" in refusal(load, saved)


def test_numbers_of_another_policy_are_refused(saved, tmp_path):
    other = make_policy(observation=(4,)).save(tmp_path / "other").with_suffix(".safetensors")
    saved.with_suffix(".safetensors").write_bytes(other.read_bytes())
    assert "written for other settings?" in refusal(load, saved)
