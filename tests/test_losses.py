"""The losses against the exact laboratory: with every transition of a finite MDP in the batch, means are exact."""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from corsdice import losses, tabular
from corsdice.divergences import CHI2, DIVERGENCES, KL, SOFT_CHI2
from corsdice.tabular import Status
from corsdice.tabular.mdp import expected_next

STATES, ACTIONS = 6, 3

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
every_alpha = pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
every_multiplier = pytest.mark.parametrize("multiplier", [0.0, 0.5])
going_on_or_ending = pytest.mark.parametrize("ending", [0.0, 0.15], ids=["going-on", "ending"])


@pytest.fixture(autouse=True)
def _float64():
    with tabular.float64():
        yield


@cache
def make_logs(ending):
    """Random dynamics on six states and a seventh, absorbing one, to which every step leads with chance `ending`."""
    generator = np.random.default_rng(0)
    states = STATES + 1
    transitions = np.zeros((states, ACTIONS, states))
    transitions[:-1, :, :-1] = (1 - ending) * generator.dirichlet(np.full(STATES, 0.3), (STATES, ACTIONS))
    transitions[:-1, :, -1] = ending
    transitions[-1, :, -1] = 1
    live = (np.arange(states) < STATES)[:, None]
    mdp = tabular.make_mdp(
        successors=np.broadcast_to(np.arange(states), transitions.shape),
        probabilities=transitions,
        rewards=np.where(live, generator.normal(size=(states, ACTIONS)), 0.0),
        costs=np.where(live, generator.beta(0.5, 0.5, (states, ACTIONS)), 0.0),
        initial=np.append(generator.dirichlet(np.ones(STATES)), 0.0),
        discount=0.9,
    )
    behaviour = generator.dirichlet(np.full(ACTIONS, 2.0), states)
    return tabular.logged(mdp, tabular.check_policy(behaviour, mdp))


class Transitions(NamedTuple):
    """Every transition that logs can show, one a row: what follows the end is never in them."""

    s: np.ndarray
    a: np.ndarray
    s_next: np.ndarray
    terminals: np.ndarray
    rewards: np.ndarray
    costs: np.ndarray
    weights: np.ndarray
    """d_D(s,a) T(s'|s,a), normalised over the rows."""


def every_transition(logs):
    mdp = logs.mdp
    s, a, s_next = np.indices((STATES, ACTIONS, STATES + 1)).reshape(3, -1)
    weights = np.asarray(logs.distribution[..., None] * mdp.probabilities)[s, a, s_next]
    rewards, costs = (np.asarray(table)[s, a] for table in (mdp.rewards, mdp.costs))
    return Transitions(s, a, s_next, 1.0 * (s_next == STATES), rewards, costs, weights / weights.sum())


def pair_shares(rows):
    """The weight of each pair [S, A] in the rows."""
    return np.bincount(rows.s * ACTIONS + rows.a, rows.weights).reshape(STATES, ACTIONS)


def semidice_tables(logs, alpha, divergence, multiplier):
    """ν and Q of the exact solution on the states that logs can show, and how far a weight w may be off.

    ν is off by the solver's residual, and w by w' times that over α, where w' <= max(w, 1).
    """
    solution = tabular.semidice(logs, alpha, divergence, multiplier)
    assert solution.status == Status.CONVERGED
    mdp = logs.mdp
    q = mdp.rewards - multiplier * mdp.costs + mdp.discount * expected_next(mdp, solution.nu)
    size = 1 + np.abs(solution.nu).max()
    off = (solution.residual + 1e-15) * size / alpha * max(solution.w.max(), 1)
    return solution.nu[:STATES], q[:STATES], float(off)


@partial(jax.jit, static_argnames="divergence")
@jax.grad
def slope_of_nu_loss(nu, q, rows, divergence, alpha):
    return losses.nu_loss(divergence, q[rows.s, rows.a], nu[rows.s], alpha, rows.weights)


@jax.jit
@jax.grad
def slope_of_q_loss(q, nu, rows, multiplier, discount):
    nu_next = jnp.where(rows.terminals, 0.0, jnp.append(nu, jnp.nan)[rows.s_next])
    reward = rows.rewards - multiplier * rows.costs
    return losses.q_loss(q[rows.s, rows.a], reward, nu_next, discount, rows.weights)


@every_divergence
@every_alpha
@every_multiplier
@going_on_or_ending
def test_the_nu_loss_is_stationary_at_semidice_and_nowhere_near_it(divergence, alpha, multiplier, ending):
    logs = make_logs(ending)
    rows = every_transition(logs)
    nu, q, off = semidice_tables(logs, alpha, divergence, multiplier)

    def relative_slope(nu):
        return slope_of_nu_loss(nu, q, rows, divergence, alpha) / pair_shares(rows).sum(-1)

    np.testing.assert_allclose(relative_slope(nu), 0, atol=off + 1e-14)
    for move in (-0.1, 0.1):  # convex in each ν(s): the loss rises on both sides
        assert (np.sign(move) * relative_slope(nu + move) > 0.01).all()


@every_divergence
@every_alpha
@every_multiplier
@going_on_or_ending
def test_the_q_loss_is_stationary_at_semidice_and_nowhere_near_it(divergence, alpha, multiplier, ending):
    logs = make_logs(ending)
    rows = every_transition(logs)
    nu, q, _ = semidice_tables(logs, alpha, divergence, multiplier)

    def relative_slope(q):
        return slope_of_q_loss(q, nu, rows, multiplier, logs.mdp.discount) / pair_shares(rows)

    np.testing.assert_allclose(relative_slope(q), 0, atol=1e-13 * (1 + np.abs(q).max()))
    np.testing.assert_allclose(relative_slope(q + 0.1), 0.2, rtol=1e-10)  # a square with its minimum at q


@every_divergence
@pytest.mark.parametrize("beta", [0.3, 0.5, 0.8])
def test_the_balanced_nu_loss_is_stationary_at_f_dvl(divergence, beta):
    logs = make_logs(0.0)
    rows = every_transition(logs)
    solution = tabular.f_dvl(logs, beta, divergence)
    assert solution.status == Status.CONVERGED
    mdp = logs.mdp
    q = (mdp.rewards + mdp.discount * expected_next(mdp, solution.nu))[:STATES]

    @jax.jit
    @jax.grad
    def slope(nu):
        return losses.nu_loss(divergence, q[rows.s, rows.a], nu[rows.s], 1.0, rows.weights, beta)

    nu = solution.nu[:STATES]
    np.testing.assert_allclose(slope(nu), 0, atol=1e-8)
    assert (slope(nu + 0.1) > 1e-3).all()
    assert (slope(nu - 0.1) < -1e-3).all()


@every_divergence
def test_semidice_losses_leave_what_they_hold_alone(divergence):
    """Semi-gradients: ν moves by the nu-loss alone, Q by the Q-loss alone."""
    q, nu, reward = np.array([[1.0, -2.0, 0.3], [0.5, 0.1, -0.4], [0.0, 1.0, 2.0]])
    to_q, to_nu = jax.jit(jax.grad(lambda q, nu: losses.nu_loss(divergence, q, nu, 0.5), (0, 1)))(q, nu)
    assert (to_q == 0).all()
    assert (to_nu != 0).any()
    to_q, to_reward, to_nu = jax.jit(jax.grad(lambda *rows: losses.q_loss(*rows, 0.9), (0, 1, 2)))(q, reward, nu)
    assert (to_q != 0).all()
    assert (to_reward == 0).all()
    assert (to_nu == 0).all()


def test_without_weights_every_row_counts_the_same():
    q, nu = jnp.array([1.0, -2.0, 0.3]), jnp.array([0.5, 0.1, -0.4])
    even = jnp.full(3, 1 / 3)
    assert losses.nu_loss(KL, q, nu, 0.5) == pytest.approx(float(losses.nu_loss(KL, q, nu, 0.5, even)), rel=1e-14)
    assert losses.policy_loss(q, nu) == pytest.approx(float(losses.policy_loss(q, nu, even)), rel=1e-14)


def e_nu_of(nu, logs, multiplier):
    """e_ν(s,a) = r - λc + γ E[ν(s')] - ν(s), with ν = 0 after the end."""
    mdp = logs.mdp
    reward = (mdp.rewards - multiplier * mdp.costs)[:STATES]
    return reward + losses.flow_error(nu[:, None], expected_next(mdp, jnp.append(nu, 0.0))[:STATES], mdp.discount)


def optidice_loss(nu, logs, shares, divergence, alpha, multiplier=0.0):
    """A row for each pair (s,a), because f*_0 is taken of the expectation over s'.

    With a row for each s' it would be the expectation of f*_0, the same on deterministic dynamics alone.
    """
    e_nu, mdp = e_nu_of(nu, logs, multiplier), logs.mdp
    return losses.optidice_nu_loss(divergence, e_nu, nu, alpha, mdp.discount, shares, mdp.initial[:STATES])


optidice_value_and_slope = jax.jit(jax.value_and_grad(optidice_loss), static_argnames="divergence")
"""The slope is how far w(ν) is from the flow, as mass of each state [S]."""


@every_divergence
@every_alpha
def test_the_optidice_loss_is_stationary_at_its_solution_and_nowhere_near_it(divergence, alpha):
    logs = make_logs(0.0)
    shares = pair_shares(every_transition(logs))
    solution = tabular.optidice(logs, alpha, divergence)
    assert solution.status == Status.CONVERGED
    nu = solution.nu[:STATES]
    least, slope = optidice_value_and_slope(nu, logs, shares, divergence, alpha)
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    for move in 0.1 * np.random.default_rng(0).normal(size=(5, STATES)):
        value, slope = optidice_value_and_slope(nu + move, logs, shares, divergence, alpha)
        assert slope @ move > 1e-4
        assert value > least


@pytest.mark.parametrize("limit", [0.3, 0.4])
def test_the_optidice_loss_is_stationary_at_coptidice_with_its_multiplier(limit):
    logs = make_logs(0.0)
    rows = every_transition(logs)
    solution = tabular.coptidice(logs, 0.1, limit, SOFT_CHI2)
    assert solution.status == Status.CONVERGED
    assert solution.lam > 0.1
    at_solution = (solution.nu[:STATES], logs, pair_shares(rows), SOFT_CHI2, 0.1)
    np.testing.assert_allclose(optidice_value_and_slope(*at_solution, solution.lam)[1], 0, atol=1e-9)
    assert np.abs(optidice_value_and_slope(*at_solution)[1]).max() > 1e-3  # without λ it is not
    w = solution.w[rows.s, rows.a]
    cost = losses.corrected_mean(w, rows.costs, rows.terminals, logs.mdp.discount, rows.weights)
    assert cost == pytest.approx(limit, abs=1e-9)


def test_the_optidice_loss_knows_of_terminations():
    """Logs hold nothing of the absorbing state, so ν is 0 there; at the minimum w still satisfies the flow."""
    logs = make_logs(0.15)
    shares = pair_shares(every_transition(logs))

    @jax.jit
    def newton_step(_, nu):
        curvature, slope = (of(optidice_loss)(nu, logs, shares, SOFT_CHI2, 1.0) for of in (jax.hessian, jax.grad))
        return nu - jnp.linalg.solve(curvature, slope)

    nu = jax.lax.fori_loop(0, 30, newton_step, jnp.zeros(STATES))
    visits = shares * SOFT_CHI2.weight(e_nu_of(nu, logs, 0.0))
    policy = jnp.append(visits / visits.sum(-1, keepdims=True), logs.behaviour[-1:], 0)
    np.testing.assert_allclose(visits, tabular.occupancy(logs.mdp, policy)[:STATES], atol=1e-13)


@going_on_or_ending
@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_the_corrected_mean_is_the_discounted_cost_even_with_a_factor_missing(alpha, ending):
    """The truth comes from the MDP with its absorbing state, which the rows know by their terminals alone."""
    logs = make_logs(ending)
    rows = every_transition(logs)
    policy = tabular.semidice(logs, alpha, CHI2).policy
    visits = tabular.occupancy(logs.mdp, policy)[:STATES]
    w = (visits / pair_shares(rows))[rows.s, rows.a]
    assert (rows.weights * w).sum() == pytest.approx(float(visits.sum()), rel=1e-13)
    assert (visits.sum() < 0.5) == (ending > 0)  # most of the discounted time is after the end
    for values, truth in ((rows.costs, logs.mdp.costs), (rows.rewards, logs.mdp.rewards)):
        exact = float(tabular.expected(logs.mdp, policy, truth))
        for factor in (0.1, 1.0, 7.0):
            mean = losses.corrected_mean(factor * w, values, rows.terminals, logs.mdp.discount, rows.weights)
            assert mean == pytest.approx(exact, rel=1e-12)
    if ending:  # and it is the terminals that make it so
        blind = losses.corrected_mean(w, rows.costs, 0 * rows.terminals, logs.mdp.discount, rows.weights)
        assert blind > 2 * tabular.expected(logs.mdp, policy, logs.mdp.costs)


@pytest.mark.parametrize("divergence", [KL, SOFT_CHI2], ids=["kl", "soft-chi2"])
@pytest.mark.parametrize("of", ["policy", "stationary"])
def test_the_policy_loss_is_least_at_the_corrected_policy(divergence, of):
    """π(a|s) = w(a|s) π_D(a|s), also where w carries a factor w(s): it weighs a state and moves no action in it."""
    logs = make_logs(0.15)
    rows = every_transition(logs)
    solution = tabular.semidice(logs, 0.1, divergence)
    w = solution.w if of == "policy" else tabular.extraction(logs, solution.w).w
    best = (solution.w * logs.behaviour)[:STATES]

    @jax.jit
    def loss(table):
        return losses.policy_loss(jax.nn.log_softmax(table)[rows.s, rows.a], w[rows.s, rows.a], rows.weights)

    np.testing.assert_allclose(best.sum(-1), 1, atol=1e-9)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(np.log(best)), 0, atol=1e-12)
    for move in 0.1 * np.random.default_rng(0).normal(size=(5, *best.shape)):
        assert loss(np.log(best) + move) > loss(np.log(best)) + 1e-5


def test_the_policy_loss_holds_the_correction():
    log_likelihood, w = jnp.array([-1.0, -0.5]), jnp.array([2.0, 0.5])
    to_likelihood, to_w = jax.jit(jax.grad(losses.policy_loss, (0, 1)))(log_likelihood, w)
    np.testing.assert_allclose(to_likelihood, -w / 2, rtol=1e-15)
    assert (to_w == 0).all()


CORRECTION = np.array([0.2, 1.4, 0.9, 2.1, 0.4, 1.0])
COSTS = np.array([0.3, 0.0, 1.0, 0.8, 0.1, 0.5])
NO_CHI = np.zeros(6)


@jax.jit
def bound(tau, radius):
    return losses.cost_bound(CORRECTION, COSTS, NO_CHI, NO_CHI, tau, radius, 0.9)


def least_bound(radius):
    """The bound at the best τ, and that τ."""
    best = minimize_scalar(
        lambda log_tau: float(bound(np.exp(log_tau), radius)[0]), bounds=(-6, 12), options={"xatol": 1e-9}
    )
    return best.fun, np.exp(best.x)


def divergence_from_even(p):
    return (p * np.log(p * len(p))).sum()


@pytest.mark.parametrize("radius", [0.0, 0.01, 0.3])
def test_the_cost_bound_is_above_the_plain_estimate_at_every_tau(radius):
    plain = (CORRECTION * COSTS).mean()
    values = [float(bound(tau, radius)[0]) for tau in (0.05, 0.3, 1.0, 5.0, 100.0)]
    assert min(values) > plain


def test_the_cost_bound_tends_to_the_plain_estimate_as_the_ball_shrinks():
    """To first order it is mean + √(2 ε) deviations."""
    scores = CORRECTION * COSTS
    for radius in (1e-3, 1e-5, 1e-7):
        excess = least_bound(radius)[0] - scores.mean()
        assert excess == pytest.approx(np.sqrt(2 * radius) * scores.std(), rel=2 * np.sqrt(radius))


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5])
def test_the_cost_bound_at_the_best_tau_is_the_worst_case_of_the_ball(radius):
    """The worst p in the ball is a tilt p ∝ exp(θ w c) on its border: found here in θ, there in τ."""
    scores = CORRECTION * COSTS

    def tilted(theta):
        p = np.exp(theta * scores)
        return p / p.sum()

    theta = brentq(lambda theta: divergence_from_even(tilted(theta)) - radius, 1e-6, 100, xtol=1e-13)
    value, tau = least_bound(radius)
    assert value == pytest.approx(tilted(theta) @ scores, rel=1e-10)
    assert tau == pytest.approx(1 / theta, rel=1e-5)
    for p in np.random.default_rng(0).dirichlet(np.full(6, 5.0), 2000):
        assert p @ scores < value or divergence_from_even(p) > radius


def test_the_weights_of_the_cost_bound_attain_it_and_lean_towards_costly_rows():
    scores = CORRECTION * COSTS
    value, tau = least_bound(0.1)
    p = bound(tau, 0.1)[1]
    assert p.sum() == pytest.approx(1, rel=1e-14)
    assert p @ scores == pytest.approx(value, rel=1e-6)
    assert (np.argsort(p) == np.argsort(scores)).all()
    assert p[scores.argmax()] > 1 / 6 > p[scores.argmin()]
    assert divergence_from_even(np.asarray(p)) == pytest.approx(0.1, rel=1e-4)


def test_a_stationary_correction_makes_chi_vanish_from_the_mean_score():
    """Two states in turn: w (c + γχ(s') - χ(s)) + (1-γ) χ(s_0) has the mean of w c, whatever χ is.

    At a large τ the bound is this mean plus τ ε.
    """
    discount = 0.9
    w = 2 * np.array([1.0, discount]) / (1 + discount)  # d_π = (1, γ)/(1+γ), logged as often each
    costs = np.array([0.3, 1.0])
    for chi in ([0.0, 0.0], [2.0, -1.0], [0.5, 3.0]):
        here = np.array(chi)
        e_chi = losses.flow_error(here, here[::-1], discount)
        value, _ = losses.cost_bound(w, costs, e_chi, np.full(2, here[0]), 1e6, 0.0, discount)
        assert value == pytest.approx(float((w * costs).mean()), abs=1e-5)


def test_the_cost_bound_moves_chi_and_tau_alone():
    def value(w, e_chi, tau):
        return losses.cost_bound(w, COSTS, e_chi, NO_CHI, tau, 0.1, 0.9)[0]

    to_w, to_e_chi, to_tau = jax.jit(jax.grad(value, (0, 1, 2)))(CORRECTION, NO_CHI, 0.5)
    assert (to_w == 0).all()
    np.testing.assert_allclose(to_e_chi, bound(0.5, 0.1)[1] * CORRECTION, rtol=1e-12)
    assert to_tau != 0
