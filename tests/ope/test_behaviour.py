"""Densities fitted to actions, against Gaussians that are known."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from corsdice import ope
from corsdice.algorithms.logs import Units
from corsdice.data import dataset_from
from corsdice.networks import Actor
from corsdice.ope import behaviour
from corsdice.ope.estimators import naive
from corsdice.ope.networks import Training
from corsdice.policy import Policy, PolicyParams

ROWS, EPISODES = 20_000, 200
SLOPE, SPREAD = 0.3, 0.2
"""The logs do SLOPE s_0 and noise of this deviation."""
SHIFT, NARROW = 0.1, 0.15
"""The policy does so much more, and its noise is less."""
UNITS = Units(*(np.asarray(each, np.float32) for each in ([0, 0], [1, 1], [0], [1], 0, 1, 0, 1)))
TRAINING = Training(3000, 256, (16,))


@cache
def logs():
    generator = np.random.default_rng(0)
    states = generator.normal(size=(ROWS + 1, 2)).clip(-2, 2)
    actions = SLOPE * states[:-1, :1] + SPREAD * generator.normal(size=(ROWS, 1))
    assert np.abs(actions).max() < 1.5
    actions = actions.clip(-0.999, 0.999)  # inside the bounds, where there are densities and no masses
    dataset = dataset_from(
        {
            "observations": states[:-1],
            "actions": actions,
            "rewards": actions[:, 0],
            "costs": actions[:, 0] > 0.2,
            "next_observations": states[1:],
            "terminals": np.zeros(ROWS),
            "timeouts": np.arange(ROWS) % (ROWS // EPISODES) == ROWS // EPISODES - 1,
        }
    )
    return ope.evidence_of(dataset, UNITS, ROWS // EPISODES, 0.9)


def policy():
    """A linear actor: one component of mean SLOPE s_0 + SHIFT and deviation NARROW; the actor itself takes ½ off."""
    actor = Actor(1, (), 1, squash=False)
    kernel = np.zeros((2, 3), np.float32)
    kernel[0, 1] = SLOPE
    bias = np.array([0.0, SHIFT, np.log(NARROW) + 0.5], np.float32)
    params = {"params": {"MLP_0": {"Dense_0": {"kernel": kernel, "bias": bias}}}}
    return Policy(actor, PolicyParams(params, UNITS), {})


def log_density(mean, deviation):
    evidence = logs()
    centre = SLOPE * np.asarray(evidence.observations[:, 0]) + mean
    return norm.logpdf(np.asarray(evidence.actions[:, 0], np.float64), centre, deviation)


def density_of(policy):
    return behaviour.policy_log_density(logs(), policy, ope.ask(logs(), policy), Training())


def test_the_density_of_a_trained_policy_is_that_of_its_gaussian():
    np.testing.assert_allclose(density_of(policy()), log_density(SHIFT, NARROW), atol=1e-4)


@cache
def known_correction():
    """w(a|s) in closed form, made to have mean 1 as the fitted one is."""
    ratio = np.exp(log_density(SHIFT, NARROW) - log_density(0, SPREAD))
    assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(ROWS))
    return ratio / ratio.mean()


@pytest.mark.parametrize("density", ["known", "fitted"])
def test_a_fitted_density_ratio_is_near_the_known_one(density):
    """A log density by maximum likelihood is off by up to √(parameters / rows) in the mean square: .12 here, twice that
    for two of them. Where w is of the order of 1, w is off by as much."""
    evidence, question = logs(), ope.ask(logs(), policy())
    own = density_of(policy()) if density == "known" else behaviour.function_log_density(evidence, question, TRAINING)
    w = behaviour.policy_correction(own, behaviour.behaviour_log_density(evidence, TRAINING))
    known = known_correction()
    assert w.mean() == pytest.approx(1, abs=1e-5)
    assert np.abs(w - known).mean() < 0.12
    assert np.abs(1 - known).mean() > 4 * 0.12  # there is something to find
    found, expected = (
        naive(evidence, question._replace(policy_correction=jnp.asarray(each))).discounted.cost for each in (w, known)
    )
    # (1-γ) times it is the policy's probability of an action above .2, which the logs' own is far from.
    exact = 10 * norm.cdf((SLOPE * np.asarray(evidence.observations[:, 0]) + SHIFT - 0.2) / NARROW).mean()
    assert abs(expected.value - exact) < expected.high - expected.low
    assert found.value == pytest.approx(expected.value, rel=0.03)
    assert 10 * evidence.values[1].mean() < 0.8 * exact


def test_a_policy_correction_has_mean_one_and_no_row_outweighs_all_others():
    even = jnp.zeros(1000)
    w = np.asarray(behaviour.policy_correction(even.at[0].set(1000.0).at[1].set(-1000.0), even))
    assert np.isfinite(w).all()
    assert w.mean() == pytest.approx(1, abs=1e-6)
    assert w[0] / w[2] == pytest.approx(behaviour.LARGEST, rel=1e-6)
    assert w[1] == 0
