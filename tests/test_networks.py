"""Actors as probability distributions, and critics that start at nothing."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chisquare, norm

from corsdice.divergences import DIVERGENCES
from corsdice.networks import LOG_STD_RANGE, SQUASH_MARGIN, Actor, Critic, Mixture, draw, log_likelihood
from corsdice.tabular import float64

squashed_or_clipped = pytest.mark.parametrize("squash", [True, False], ids=["squashed", "clipped"])
LOGITS = np.array([0.2, -0.5])
MEANS = np.array([[-0.7, 0.3], [0.8, -0.2]])
LOG_STDS = np.array([[-0.8, -0.3], [-1.2, -0.6]])

likelihood_of = jax.jit(log_likelihood, static_argnames="squash")
sample = jax.jit(draw, static_argnames="squash")


def two_components(actions):
    """A mixture of two Gaussians over one or two actions, with a good share beyond ±1."""
    return Mixture(jnp.asarray(LOGITS), jnp.asarray(MEANS[:, :actions]), jnp.asarray(LOG_STDS[:, :actions]))


def quadrature(squash, low=-1.0, high=1.0, nodes=200):
    """Points of [low, high] and their weights: Gauss-Legendre, and under clipping the bounds, which weigh 1."""
    edge = 1 - SQUASH_MARGIN if squash else 1.0
    low, high = max(low, -edge), min(high, edge)
    points, weights = np.polynomial.legendre.leggauss(nodes)
    points, weights = low + (high - low) * (points + 1) / 2, weights * (high - low) / 2
    if not squash:
        bounds = [bound for bound in (-1.0, 1.0) if bound in (low, high)]
        points, weights = np.append(points, bounds), np.append(weights, np.ones(len(bounds)))
    return points, weights


def mass_within_margin(actions):
    """Of the squashed mixture: what lies within the margin, where log_likelihood is a density."""
    reach = np.arctanh(1 - SQUASH_MARGIN)
    means, stds = MEANS[:, :actions], np.exp(LOG_STDS[:, :actions])
    each = norm.cdf((reach - means) / stds) - norm.cdf((-reach - means) / stds)
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum()
    return shares @ each.prod(-1)


@squashed_or_clipped
@pytest.mark.parametrize("actions", [1, 2])
def test_the_likelihood_sums_to_one(squash, actions):
    """A density inside, and under clipping a probability on each bound, face and corner."""
    points, weights = quadrature(squash)
    grid = np.stack(np.meshgrid(*[points] * actions), -1).reshape(-1, actions)
    weight = np.stack(np.meshgrid(*[weights] * actions), -1).reshape(-1, actions).prod(-1)
    with float64():
        likelihood = np.exp(likelihood_of(two_components(actions), jnp.asarray(grid), squash=squash))
    expected = mass_within_margin(actions) if squash else 1.0
    assert weight @ likelihood == pytest.approx(expected, abs=1e-9)
    assert expected > 0.999


def test_the_mass_on_a_bound_is_that_of_all_that_was_clipped():
    with float64():
        on_bounds = np.exp(likelihood_of(two_components(1), jnp.array([[-1.0], [1.0]]), squash=False))
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum()
    z = (1 - MEANS[:, 0]) / np.exp(LOG_STDS[:, 0]), (1 + MEANS[:, 0]) / np.exp(LOG_STDS[:, 0])
    np.testing.assert_allclose(on_bounds, [shares @ norm.sf(z[1]), shares @ norm.sf(z[0])], rtol=1e-10)
    assert on_bounds.min() > 0.05


@squashed_or_clipped
def test_draws_follow_the_likelihood(squash):
    """Counts in twenty cells against the integral of the likelihood over each."""
    draws = 100_000
    edges = np.linspace(-1, 1, 21)
    cells = [quadrature(squash, *cell, nodes=40) for cell in pairwise(edges)]
    points, weights = (np.concatenate(parts) for parts in zip(*cells, strict=True))
    with float64():
        likelihood = np.exp(likelihood_of(two_components(1), jnp.asarray(points)[:, None], squash=squash))
        many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (draws, *leaf.shape)), two_components(1))
        actions = np.asarray(sample(many, jax.random.key(0), squash=squash))[:, 0]
    owners = np.repeat(np.arange(20), [len(points) for points, _ in cells])
    expected = np.bincount(owners, weights * likelihood)
    counts = np.histogram(actions, edges)[0]
    assert chisquare(counts, draws * expected / expected.sum()).pvalue > 0.01
    assert (np.abs(actions) == 1).any() != squash  # clipping reaches the bounds, tanh does not


def fit(actor, actions, steps=600):
    """Behaviour cloning of actions [n, 1] that depend on nothing."""
    observations = jnp.zeros((len(actions), 1))
    optimiser = optax.adam(0.03)

    def loss(params):
        return -log_likelihood(actor.apply(params, observations), actions, squash=actor.squash).mean()

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    params = jax.jit(actor.init)(jax.random.key(0), observations[:1])
    (params, _), values = jax.jit(lambda carry: jax.lax.scan(step, carry, length=steps))(
        (params, optimiser.init(params))
    )
    return params, values


def cell_log_likelihood(actor, params, actions):
    """Mean log probability of the cell, of forty on [-1, 1], that an action lies in.

    Densities and probabilities on bounds do not compare; probabilities of cells do.
    """
    draws = 100_000
    mixture = jax.jit(actor.apply)(params, jnp.zeros((draws, 1)))
    drawn = sample(mixture, jax.random.key(1), squash=actor.squash)[:, 0]
    edges = np.linspace(-1, 1, 41)
    counts = np.histogram(drawn, edges)[0]
    cells = np.clip(np.digitize(actions[:, 0], edges) - 1, 0, 39)
    return np.log((counts[cells] + 1) / (draws + 40)).mean()


def test_a_clipped_mixture_learns_saturated_bimodal_actions_and_one_squashed_gaussian_does_not():
    """Half of the actions at the bound -1, half about 0.4: logs of a control that saturates or does not."""
    inside = 0.4 + 0.1 * jax.random.normal(jax.random.key(2), (200, 1))
    actions = jnp.concatenate([jnp.full((200, 1), -1.0), inside])
    counts = np.histogram(actions, np.linspace(-1, 1, 41))[0] / len(actions)
    best = (counts[counts > 0] * np.log(counts[counts > 0])).sum()  # no distribution over the cells can have more
    reached = {}
    for name, actor in {
        "clipped mixture": Actor(1, (), components=3, squash=False),
        "squashed Gaussian": Actor(1, (), components=1, squash=True),
    }.items():
        params, values = fit(actor, actions)
        assert np.isfinite(values).all()
        assert values[-1] < values[0] - 0.2
        reached[name] = cell_log_likelihood(actor, params, np.asarray(actions))
    assert reached["clipped mixture"] > best - 0.1
    assert reached["squashed Gaussian"] < best - 0.8


@squashed_or_clipped
def test_likelihood_and_gradients_are_finite_however_far_the_action(squash):
    """In float32, at the bounds and next to them, with means far outside and deviations at either end."""
    actions = jnp.array([-1.0, -1 + 1e-7, -0.3, 0.0, 1 - 1e-7, 1.0])[:, None]

    @jax.jit
    def value_and_gradients(logits, means, log_stds):
        def value(*parts):
            many = (jnp.broadcast_to(part, (6, *part.shape)) for part in parts)
            return log_likelihood(Mixture(*many), actions, squash=squash)

        return value(logits, means, log_stds), jax.jacrev(value, (0, 1, 2))(logits, means, log_stds)

    for mean in (0.0, 1.0, -1.0, 30.0, -1e4, 1e4):
        for log_std in (*LOG_STD_RANGE, 0.0):
            means, log_stds = np.float32([[mean], [0.5]]), np.full((2, 1), log_std, np.float32)
            value, gradients = value_and_gradients(np.float32([0.0, -1.0]), means, log_stds)
            assert np.isfinite(value).all()
            assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_the_gradient_on_a_bound_is_right_in_the_far_tail():
    """At -1, from means up to 10: the hazard φ(z)/Φ(-z), which float32 knows to some z²/2 roundings."""

    @jax.jit
    @jax.grad
    def slope(mean, log_std):
        return log_likelihood(Mixture(jnp.zeros(1), mean[None, None], log_std[None, None]), -jnp.ones(1), squash=False)

    std = np.exp(LOG_STD_RANGE[0])
    for mean in (0.0, 1.0, 3.0, 10.0):
        z = (1 + mean) / std
        expected = -np.exp(norm.logpdf(z) - norm.logcdf(-z)) / std
        found = slope(np.float32(mean), np.float32(LOG_STD_RANGE[0]))
        assert found == pytest.approx(expected, rel=4 * z**2 / 2 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("lead", [(), (5,), (2, 5)])
def test_an_actor_gives_a_mixture_for_each_observation(lead):
    actor = Actor(actions=2, widths=(8,), components=3)

    def everything(observations, actions, key):
        mixture = actor.apply(actor.init(key, observations), observations)
        likelihood = log_likelihood(mixture, actions, squash=False)
        return mixture, likelihood, draw(mixture, key, squash=False)

    inputs = (jnp.ones((*lead, 4)), jnp.ones((*lead, 2)), jax.random.key(0))
    mixture, likelihood, drawn = jax.eval_shape(everything, *inputs)
    assert mixture.logits.shape == (*lead, 3)
    assert mixture.means.shape == mixture.log_stds.shape == (*lead, 3, 2)
    assert likelihood.shape == lead
    assert drawn.shape == (*lead, 2)


def test_components_start_apart_within_the_box_and_one_alone_starts_in_the_middle():
    observations = jnp.ones((1, 4))
    many, one = (Actor(1, (8,), components=k) for k in (3, 1))
    means = many.apply(many.init(jax.random.key(0), observations), observations).means.ravel()
    assert len(set(means.tolist())) == 3
    assert jnp.abs(means).max() <= 1
    assert one.apply(one.init(jax.random.key(0), observations), observations).means == 0


@pytest.mark.parametrize("push", [-100.0, 100.0])
def test_deviations_stay_in_their_range(push):
    actor = Actor(1, ())
    observations = jnp.ones((1, 4))
    params = jax.tree.map(lambda leaf: leaf + push, actor.init(jax.random.key(0), observations))
    log_stds = actor.apply(params, observations).log_stds
    assert log_stds == (LOG_STD_RANGE[0] if push < 0 else LOG_STD_RANGE[1])


@pytest.mark.parametrize("layer_norm", [False, True])
def test_critics_start_at_zero_and_every_correction_at_one(layer_norm):
    critic = Critic((8,), members=2, layer_norm=layer_norm)

    def start(rows):
        return critic.apply(critic.init(jax.random.key(0), rows), rows)

    for lead in ((), (5,), (2, 5)):
        assert jax.eval_shape(start, jnp.ones((*lead, 4))).shape == (2, *lead)
    values = jax.jit(start)(np.random.default_rng(0).normal(size=(5, 4)))
    assert (values == 0).all()
    for divergence in DIVERGENCES.values():
        assert (divergence.weight(values) == 1).all()


def test_the_members_of_a_critic_are_independent():
    critic = Critic((8,), members=2)
    rows = jax.random.normal(jax.random.key(1), (5, 4))
    params = jax.jit(critic.init)(jax.random.key(0), rows)
    first, second = params["params"].values()
    assert not jnp.allclose(first["Dense_0"]["kernel"], second["Dense_0"]["kernel"])
    slopes = jax.jit(jax.grad(lambda params: critic.apply(params, rows)[0].sum()))(params)["params"]
    touched = [any(bool((leaf != 0).any()) for leaf in jax.tree.leaves(member)) for member in slopes.values()]
    assert touched == [True, False]


def test_layer_norm_adds_its_parameters_and_makes_the_scale_of_the_input_no_matter():
    rows = jax.random.normal(jax.random.key(1), (5, 4))

    def run(layer_norm, scale):
        critic = Critic((8,), layer_norm=layer_norm)
        params = jax.jit(critic.init)(jax.random.key(0), rows)
        moved = jax.tree.map(lambda leaf: leaf + 0.1 * (leaf.shape == (8, 1)), params)  # off the zero of the start
        return jax.tree.leaves(params), critic.apply(moved, scale * rows)[0]

    plain_leaves, plain = run(False, 1.0)
    normed_leaves, normed = run(True, 1.0)
    assert len(normed_leaves) == len(plain_leaves) + 2
    assert not jnp.allclose(plain, normed)
    np.testing.assert_allclose(run(True, 10.0)[1], normed, rtol=1e-4)
    np.testing.assert_allclose(run(False, 10.0)[1], 10 * plain, rtol=1e-4)
