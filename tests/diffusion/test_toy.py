"""Two modes of logged actions, one of which w favours: do samples follow w π_D, and does a Gaussian?"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import norm

from corsdice.diffusion.actors import Diffused, Guided, Resampled
from corsdice.diffusion.guidance import learn_energy
from corsdice.diffusion.score import begin, begin_at, fit_actions, learn_actions
from corsdice.losses import policy_loss
from corsdice.networks import Actor, Critic

PLACES, WIDTH, FAVOUR = (-0.5, 0.5), 0.05, (0.4, 1.6)
ROWS, DRAWS = 20_000, 40_000
EDGES = np.linspace(-1, 1, 21)
BEHAVIOUR = Diffused(1, width=32, blocks=3, time_size=16, condition_size=8, steps=20)
ALPHA = 0.3
TOLERANCE = 0.02
"""Total variation that samples may have from w π_D, some .003 of which is that of 40,000 draws themselves."""


@pytest.fixture(scope="module")
def logs():
    """Observations that are all alike, actions of either mode with equal chance, and w of each."""
    generator = np.random.default_rng(0)
    high = np.arange(ROWS) % 2 == 1
    actions = np.where(high, PLACES[1], PLACES[0]) + WIDTH * norm.ppf((generator.permutation(ROWS) + 0.5) / ROWS)
    observations = np.zeros((ROWS, 2))
    w = np.where(high, FAVOUR[1], FAVOUR[0])
    return tuple(jnp.asarray(column, jnp.float32) for column in (observations, actions[:, None], w))


@pytest.fixture(scope="module")
def behaviour(logs):
    observations, actions, _ = logs
    return fit_actions(BEHAVIOUR.network, observations, actions, steps=8000, batch=512, rate=5e-3)


def trained(step, start, steps=4000, batch=512, rate=5e-3, seed=7):
    """The average after so many steps on rows drawn at random, by `step(fit, rows, rate, key)`."""

    def one(fit, number):
        rows_key, noise_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        rows = jax.random.randint(rows_key, (batch,), 0, ROWS)
        return step(fit, rows, 0.5 * rate * (1 + jnp.cos(jnp.pi * number / steps)), noise_key)

    return jax.jit(lambda fit: jax.lax.scan(one, fit, jnp.arange(steps)))(start)[0].average


def denoised(logs, behaviour, **settings):
    """A score model of w π_D, that of the logs gone on with."""
    observations, actions, w = logs

    def step(fit, rows, rate, key):
        return learn_actions(BEHAVIOUR.network, fit, observations[rows], actions[rows], rate, key, w[rows])

    return trained(step, begin_at(behaviour), **settings)


def energy(logs, **settings):
    network = BEHAVIOUR.score_net(1)

    def step(fit, rows, rate, key):
        return learn_energy(network, fit, *(column[rows] for column in logs), rate, key)

    return trained(step, begin(network, jax.random.key(1), *logs[:2]), **settings)


def total_variation(actions, favoured):
    """From w π_D, in cells twice as wide as a mode's deviation, whose edges halve the modes."""
    shares = np.array([1 - favoured, favoured])
    truth = shares @ np.stack([np.diff(norm.cdf(EDGES, place, WIDTH)) for place in PLACES])
    found = np.histogram(actions, EDGES)[0] / len(actions)
    return np.abs(found - truth).sum() / 2


def stepped(q_low, q_high):
    """A critic of two units whose difference is a ramp around action 0, flat where the modes are."""
    hidden = {"kernel": jnp.zeros((3, 2)).at[2].set(20.0), "bias": jnp.array([0.5, -0.5])}
    output = {"kernel": (q_high - q_low) * jnp.array([[1.0], [-1.0]]), "bias": jnp.array([q_low])}
    return {"params": {"MLP_0": {"Dense_0": hidden, "Dense_1": output}}}


def q_and_nu():
    """With which soft-χ² has w = FAVOUR at ν = 0: α log w below 1, α (w - 1) above."""
    low, high = ALPHA * np.log(FAVOUR[0]), ALPHA * (FAVOUR[1] - 1)
    return stepped(low, high), Critic((2,)).init(jax.random.key(0), jnp.zeros((1, 2)))


def drawn(actor, params):
    return np.asarray(jax.jit(actor.draw)(params, jnp.zeros((DRAWS, 2)), jax.random.key(3)))[:, 0]


def test_the_behaviour_model_draws_what_was_logged(behaviour):
    assert total_variation(drawn(BEHAVIOUR, behaviour), 0.5) < TOLERANCE


def test_resampling_follows_w(behaviour):
    q, nu = q_and_nu()
    params = {"behaviour": behaviour, "q": q, "nu": nu, "alpha": jnp.float32(ALPHA)}
    assert total_variation(drawn(Resampled(BEHAVIOUR, (2,), candidates=32), params), 0.8) < TOLERANCE


def test_guidance_by_denoising_follows_w_and_selection_goes_further(logs, behaviour):
    q, _ = q_and_nu()
    params = {"behaviour": behaviour, "q": q, "guide": denoised(logs, behaviour)}
    assert total_variation(drawn(Guided(BEHAVIOUR, (2,)), params), 0.8) < TOLERANCE
    selected = drawn(Guided(BEHAVIOUR, (2,), candidates=8), params)
    assert (selected > 0).mean() > 0.99  # the favoured mode alone: not π_w


def test_guidance_by_energy_follows_w_less_closely(logs, behaviour):
    """Of eight seeds .015 to .041 (docs/diffusion.md)."""
    q, _ = q_and_nu()
    params = {"behaviour": behaviour, "q": q, "guide": energy(logs)}
    assert total_variation(drawn(Guided(BEHAVIOUR, (2,), by="energy"), params), 0.8) < 0.05


def test_a_gaussian_is_another_policy_and_a_mixture_is_not(logs):
    observations, actions, w = logs
    variations = {}
    for components in (1, 3):
        actor = Actor(1, (16,), components, squash=False)
        optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, 1500))

        def step(carry, key, actor=actor, optimiser=optimiser):
            params, state = carry
            rows = jax.random.randint(key, (512,), 0, ROWS)

            def loss(params):
                return policy_loss(actor.log_likelihood(params, observations[rows], actions[rows]), w[rows])

            change, state = optimiser.update(jax.grad(loss)(params), state)
            return (optax.apply_updates(params, change), state), None

        params = actor.init(jax.random.key(0), observations[:1])
        keys = jax.random.split(jax.random.key(1), 1500)
        (params, _), _ = jax.jit(lambda carry, step=step, keys=keys: jax.lax.scan(step, carry, keys))(
            (params, optimiser.init(params))
        )
        variations[components] = total_variation(drawn(actor, params), 0.8)
    assert variations[1] > 0.5
    assert variations[3] < 0.05
