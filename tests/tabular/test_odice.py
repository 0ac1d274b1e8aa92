import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_problems import BETAS, make_logs

from corsdice import tabular
from corsdice.divergences import DIVERGENCES
from corsdice.tabular import Status

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)


def orthogonal_gradient(logs, nu, beta, eta, divergence):
    """The field of appendix B.2 as it is written there: one transition at a time, by automatic differentiation."""
    mdp = logs.mdp

    def of_transition(state, successor, reward):
        def f_star(now, following):
            return divergence.conjugate(reward + mdp.discount * following[successor] - now[state])

        forward = jax.grad(f_star, argnums=0)(nu, nu)
        backward = jax.grad(f_star, argnums=1)(nu, nu)
        square = jnp.maximum(forward @ forward, 1e-300)
        return forward + eta * (backward - (backward @ forward) / square * forward)

    shape = mdp.successors.shape
    states = jnp.broadcast_to(jnp.arange(mdp.states)[:, None, None], shape).ravel()
    rewards = jnp.broadcast_to(mdp.rewards[..., None], shape).ravel()
    weights = (logs.distribution[..., None] * mdp.probabilities).ravel()
    each = jax.vmap(of_transition)(states, mdp.successors.ravel(), rewards)
    return (1 - beta) * logs.state_distribution + beta * weights @ each


@every_divergence
@pytest.mark.parametrize("beta", BETAS)
def test_the_solution_is_a_rest_point_of_the_orthogonal_gradient(logs, divergence, beta):
    for eta in (1.0, 0.5):
        solution = tabular.odice(logs, beta, eta, divergence)
        assert solution.status == Status.CONVERGED
        np.testing.assert_allclose(orthogonal_gradient(logs, solution.nu, beta, eta, divergence), 0, atol=1e-8)


def test_the_logs_have_self_loops_so_that_the_projection_matters(logs):
    loops = (logs.mdp.successors == jnp.arange(logs.mdp.states)[:, None, None]) & (logs.mdp.probabilities > 0)
    assert loops.any()


def test_odice_is_neither_correction():
    for seed in range(3):
        logs = make_logs(seed)[1]
        for beta in BETAS:
            w = tabular.odice(logs, beta).w
            assert tabular.flow_violation(logs, w) > 0.01
            assert tabular.policy_violation(logs, w) > 0.1
