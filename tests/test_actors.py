"""Ways to act: that they stay in the box, take what they should, and are found again in their description."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice.actors import BestOf, Perturbed, describe, described, logged_like
from corsdice.diffusion.actors import AT_ONCE, Diffused, Guided, Resampled, each_row
from corsdice.networks import Actor, Critic

DIFFUSED = Diffused(2, width=8, blocks=3, time_size=4, condition_size=8, steps=3)
ACTORS = {
    "mixture": Actor(2, (8,), 3, squash=False),
    "perturbed": Perturbed(2, (8,), 0.3),
    "best of logged": BestOf(Perturbed(2, (8,), 0.3), (4,), critics=3, candidates=5),
    "best of a Gaussian": BestOf(Actor(2, (8,), 1, squash=True), (4,), caution=1.0),
    "diffused": DIFFUSED,
    "resampled": Resampled(DIFFUSED, (4,), critics=2, divergence="kl", candidates=5),
    "guided": Guided(DIFFUSED, (4,), layer_norm=True, scale=0.5, candidates=3),
    "guided-by-energy": Guided(DIFFUSED, (4,), by="energy"),
}
every_actor = pytest.mark.parametrize("actor", ACTORS.values(), ids=ACTORS)


def random_params(actor, seed=0, size=1.0):
    """Numbers everywhere: networks start with a last layer of zeros."""
    params = actor.init(jax.random.key(seed), jnp.zeros((1, 3)))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [leaf + size * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy)


def observations(rows):
    return jax.random.normal(jax.random.key(9), (rows, 3))


@every_actor
def test_an_actor_is_found_again_in_its_description(actor):
    again = described(json.loads(json.dumps(describe(actor))))
    assert again == actor
    assert hash(again) == hash(actor)


@pytest.mark.parametrize(
    "change",
    [{"kind": "unheard of"}, {"widths": "wide"}, {"proposal": 7}, {"proposal": {"kind": "mixture"}}, {"critics": None}],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(change):
    with pytest.raises((KeyError, TypeError, ValueError)):
        described(describe(ACTORS["best of logged"]) | change)


@every_actor
def test_actions_stay_in_the_box_and_depend_on_the_key_and_the_place(actor):
    params, rows = random_params(actor), observations(500)
    first, again, other = (actor.draw(params, rows, jax.random.key(seed)) for seed in (0, 0, 1))
    assert first.shape == (500, 2)
    assert jnp.abs(first).max() <= 1
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first[0] != first[1:]).any()


@every_actor
def test_an_actor_takes_one_observation_as_it_takes_many(actor):
    params, rows = random_params(actor), observations(4)
    assert actor.draw(params, rows[0], jax.random.key(0)).shape == (2,)


def test_many_rows_are_drawn_part_by_part_as_few_are():
    actor = ACTORS["resampled"]
    params = random_params(actor, size=0.3)
    rows = observations(AT_ONCE // actor.candidates + 7)  # the last part is short

    def one(row, key):
        return 10 * row + jax.random.normal(key, row.shape)

    expected = jax.vmap(one)(rows, jax.random.split(jax.random.key(0), len(rows)))
    np.testing.assert_allclose(each_row(one, rows, jax.random.key(0), actor.candidates), expected, atol=1e-4)
    drawn = jax.jit(actor.draw)(params, jnp.zeros_like(rows), jax.random.key(0))
    assert len(np.unique(drawn[-9:], axis=0)) > 4


def test_candidates_weigh_what_their_values_say():
    actor = ACTORS["resampled"]
    params = random_params(actor, size=0.5) | {"alpha": jnp.float32(0.7)}
    row = observations(1)[0]
    candidates, w = actor.weighed(params, row, jax.random.key(0))
    pairs = jnp.concatenate([jnp.tile(row, (5, 1)), candidates], -1)
    q, nu = Critic((4,), 2).apply(params["q"], pairs).min(0), Critic((4,)).apply(params["nu"], row)[0]
    np.testing.assert_allclose(w, jnp.exp((q - nu) / 0.7), rtol=1e-4)
    assert w.max() > 1.1 * w.min()


def test_of_guided_candidates_the_one_of_the_largest_value_is_taken():
    one, best = Guided(DIFFUSED, (4,), candidates=1), Guided(DIFFUSED, (4,), candidates=64)
    params, rows = random_params(best, size=0.5), observations(200)

    def value(actor):
        actions = jax.jit(actor.draw)(params, rows, jax.random.key(0))
        return Critic((4,)).apply(params["q"], jnp.concatenate([rows, actions], -1))[0]

    assert (value(best) >= value(one) - 1e-3).mean() > 0.9
    assert (value(best) - value(one)).mean() > 0.1


@pytest.mark.parametrize("by", ["denoising", "energy"])
def test_the_scale_of_guidance_multiplies_the_shift_from_the_logs(by):
    params, row = random_params(Guided(DIFFUSED, (4,), by=by), size=0.1), observations(1)[0]
    noised, level = 0.1 * jax.random.normal(jax.random.key(1), (50, 2)), jnp.float32(1.0)

    def expected(scale):
        return Guided(DIFFUSED, (4,), scale=scale, by=by).expected(params, row)(noised, level)

    logged = DIFFUSED.expected(params["behaviour"], row)(noised, level)
    np.testing.assert_allclose(expected(0.0), logged, atol=1e-6)
    assert jnp.abs(expected(1.0) - logged).max() > 0.01
    np.testing.assert_allclose(expected(2.0) - logged, 2 * (expected(1.0) - logged), atol=1e-5)


def test_a_candidate_is_moved_from_what_was_logged_by_its_reach_at_most():
    actor = ACTORS["perturbed"]
    params, rows = random_params(actor), observations(500)
    logged = logged_like(actor.vae, params["vae"], rows, jax.random.key(3))
    moved = jnp.abs(actor.draw(params, rows, jax.random.key(3)) - logged)
    assert moved.max() <= actor.reach + 1e-6
    assert moved.max() > 0.5 * actor.reach


def test_the_best_candidate_is_taken():
    """Drawn again with the same keys, none has a larger Q - λ Q_c."""
    actor = ACTORS["best of logged"]
    params = random_params(actor) | {"multiplier": jnp.float32(0.7)}
    rows, key = observations(200), jax.random.key(5)

    def score(actions):
        pairs = jnp.concatenate([rows, actions], -1)
        q, q_cost = actor.critic.apply(params["q"], pairs), actor.critic.apply(params["q_cost"], pairs)
        cautious = 0.75 * q.min(0) + 0.25 * q.max(0)
        return cautious - 0.7 * (0.75 * q_cost.max(0) + 0.25 * q_cost.min(0))

    each = jnp.stack([score(actor.proposal.draw(params["proposal"], rows, k)) for k in jax.random.split(key, 5)])
    taken = score(actor.draw(params, rows, key))
    np.testing.assert_allclose(taken, each.max(0), rtol=1e-5, atol=1e-5)
    assert (each.max(0) - each.min(0)).mean() > 0.1  # there is something to choose from
