"""The losses of the paper, one pure function for each equation: arrays in, scalar out.

Every array has one entry a transition of the batch, except `mu_initial` and what is said otherwise. Means are over the
batch, or weighted by `weights` that sum to 1: with the probabilities of all transitions of a finite MDP as weights a
loss is an exact expectation, which is how it is tested against the exact solvers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from corsdice.divergences import Divergence


def _mean(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    return values.mean() if weights is None else (weights * values).sum()


def flow_error(mu: jax.Array, mu_next: jax.Array, discount: jax.Array | float) -> jax.Array:
    """ê_μ(s,s') = γ μ(s') - μ(s); pass μ(s') = 0 where s' ends the episode (a termination, never a timeout)."""
    return discount * mu_next - mu


def extraction_a_loss(
    a: jax.Array, policy_correction: jax.Array, e_mu: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """E_D[(A(s) - w(a|s) ê_μ(s,s'))²] (label u-loss); a function of A, with w and ê_μ held."""
    return _mean((a - jax.lax.stop_gradient(policy_correction * e_mu)) ** 2, weights)


def extraction_mu_loss(
    divergence: Divergence,
    a: jax.Array,
    policy_correction: jax.Array,
    e_mu: jax.Array,
    mu_initial: jax.Array,
    discount: jax.Array | float,
    weights: jax.Array | None = None,
    initial_weights: jax.Array | None = None,
) -> jax.Array:
    """(1-γ) E_{p_0}[μ(s_0)] + E_D[(f*_0)'(A(s)) w(a|s) ê_μ(s,s')] (label mu-loss); a function of μ, with A held."""
    held = jax.lax.stop_gradient(divergence.weight(a) * policy_correction)
    return (1 - discount) * _mean(mu_initial, initial_weights) + _mean(held * e_mu, weights)


def extraction_losses(
    divergence: Divergence,
    a: jax.Array,
    mu: tuple[jax.Array, jax.Array, jax.Array],
    constant: jax.Array,
    policy_correction: jax.Array,
    alive: jax.Array,
    discount: jax.Array | float,
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Both losses of A and μ, the latter in s, s' and s_0, and w(s) = max(0, (f')^-1(A(s))), held.

    The constant of μ enters ê_μ with the factor 1-γ, so a network would take a hundred times as long to learn it as
    the rest; as b/(1-γ) with a parameter b of its own it moves A by b at once.
    """
    here, following, initial = (each + constant / (1 - discount) for each in mu)
    a = a - jax.lax.stop_gradient(constant)
    e_mu = flow_error(here, alive * following, discount)
    return {
        "a_loss": extraction_a_loss(a, policy_correction, e_mu),
        "mu_loss": extraction_mu_loss(divergence, a, policy_correction, e_mu, initial, discount),
    }, jax.lax.stop_gradient(divergence.weight(a))


def nu_loss(
    divergence: Divergence,
    q: jax.Array,
    nu: jax.Array,
    alpha: jax.Array | float,
    weights: jax.Array | None = None,
    balance: float = 0.5,
) -> jax.Array:
    """E_D[ν(s) + α f*_0((Q(s,a) - ν(s))/α)] (label nu-loss); a function of ν, with Q held.

    With β, the balance, other than one half: twice E_D[(1-β) ν + β α f*_0] (label appendix:fdvl).
    """
    advantage = jax.lax.stop_gradient(q) - nu
    conjugate = alpha * divergence.conjugate(advantage / alpha)
    return 2 * _mean((1 - balance) * nu + balance * conjugate, weights)


def q_loss(
    q: jax.Array,
    penalised_reward: jax.Array,
    nu_next: jax.Array,
    discount: jax.Array | float,
    weights: jax.Array | None = None,
) -> jax.Array:
    """E_D[(r - λc + γ ν(s') - Q(s,a))²] (label Q-loss); a function of Q, with ν held and 0 after a termination."""
    return _mean((jax.lax.stop_gradient(penalised_reward + discount * nu_next) - q) ** 2, weights)


def policy_loss(log_likelihood: jax.Array, correction: jax.Array, weights: jax.Array | None = None) -> jax.Array:
    """-E_D[w log π(a|s)] (label pi-loss): weighted behaviour cloning; a function of π, with w held."""
    return -_mean(jax.lax.stop_gradient(correction) * log_likelihood, weights)


def optidice_nu_loss(
    divergence: Divergence,
    advantage: jax.Array,
    nu_initial: jax.Array,
    alpha: jax.Array | float,
    discount: jax.Array | float,
    weights: jax.Array | None = None,
    initial_weights: jax.Array | None = None,
) -> jax.Array:
    """(1-γ) E_{p_0}[ν(s_0)] + α E_D[f*_0(e_ν/α)] with e_ν = r - λc + γν(s') - ν(s); a function of ν, all of it.

    `advantage` must be e_ν in expectation over s'. With one s' a row, as the neural OptiDICE has it, noise of the
    dynamics inside the convex f*_0 biases the minimum: a weakness of the method that SemiDICE does not share.
    """
    conjugate = _mean(divergence.conjugate(advantage / alpha), weights)
    return (1 - discount) * _mean(nu_initial, initial_weights) + alpha * conjugate


def corrected_mean(
    correction: jax.Array,
    values: jax.Array,
    terminals: jax.Array,
    discount: jax.Array | float,
    weights: jax.Array | None = None,
) -> jax.Array:
    """E_D[w(s,a) x], w made to sum as it must; with x the cost, the estimate inside label modified-lambda-loss.

    Summed over all states the flow equations say E_D[w] = 1 - γ/(1-γ) E_D[w · ended]: what has ended is not in the
    logs. A w that misses this by a factor is divided by it.
    """
    mass = _mean(correction * (1 + discount / (1 - discount) * terminals), weights)
    return _mean(correction * values, weights) / mass


def cost_bound(
    correction: jax.Array,
    costs: jax.Array,
    e_chi: jax.Array,
    chi_initial: jax.Array,
    tau: jax.Array,
    radius: float,
    discount: jax.Array | float,
) -> tuple[jax.Array, jax.Array]:
    """τ log E_D[exp((w (c + ê_χ) + (1-γ) χ(s_0)) / τ)] + τ ε, and the reweighting p of the rows that attains it.

    COptiDICE's upper bound on E_D[w c] over all p with KL(p ‖ D) <= ε (Lee et al., 2022); a function of χ and τ. Row i
    is paired with initial state i.
    """
    scores = (jax.lax.stop_gradient(correction) * (costs + e_chi) + (1 - discount) * chi_initial) / tau
    bound = tau * (jax.scipy.special.logsumexp(scores) - jnp.log(len(scores))) + tau * radius
    return bound, jax.lax.stop_gradient(jax.nn.softmax(scores))


def divergence_from_prior(mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """KL(N(mean, std²) ‖ N(0, 1)) [...], summed over the last axis."""
    return (0.5 * (mean**2 + jnp.exp(2 * log_std) - 1) - log_std).sum(-1)


def vae_loss(
    reconstruction: jax.Array, actions: jax.Array, mean: jax.Array, log_std: jax.Array, weight: float
) -> jax.Array:
    """Squared error of the actions [n, A] that were encoded and decoded, and `weight` times the KL from the prior.

    Both are means, over actions and over latents, as published: a sum over latents would be four times the weight with
    two actions.
    """
    divergence = divergence_from_prior(mean, log_std) / mean.shape[-1]
    return ((reconstruction - actions) ** 2).mean() + weight * divergence.mean()


def maximum_mean_discrepancy(x: jax.Array, y: jax.Array, width: float) -> jax.Array:
    """[...] between samples x and y [m, ..., A], with the kernel exp(-|x-y|²/2σ) (BEAR, Kumar et al., 2019)."""

    def kernel(left: jax.Array, right: jax.Array) -> jax.Array:
        distance = ((left[:, None] - right[None]) ** 2).sum(-1)
        return jnp.exp(-distance / (2 * width)).mean((0, 1))

    squared = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
    return jnp.sqrt(jnp.maximum(squared, 0.0) + 1e-6)  # a root has no slope at 0


def denoising_loss(
    velocity: jax.Array,
    actions: jax.Array,
    noise: jax.Array,
    signal: jax.Array,
    deviation: jax.Array,
    correction: jax.Array | float = 1.0,
) -> jax.Array:
    """E[w ‖v_θ - (α_t ε - σ_t a)‖²] [n, A], a weighting of the noise-prediction loss E‖ε_θ - ε‖² by 1/α_t².

    What is asked for is ε where there is little noise and -a where there is little else (Salimans and Ho, 2022): an
    error of ε_θ would be divided by α_1 = .007 on its way to the action. With w(a|s) [n] it is least at the v of w π_D,
    with none at that of the logs.
    """
    errors = ((velocity - (signal * noise - deviation * actions)) ** 2).sum(-1)
    return (jax.lax.stop_gradient(correction) * errors).mean()


def energy_loss(energy: jax.Array, correction: jax.Array) -> jax.Array:
    """E[w(a_0|s) e^{-E} + E] on noised logged actions: least where E(a_t,s) = log E[w(a_0|s) | a_t, s].

    In-sample guidance (D-DICE, Mao et al., 2024): no action is drawn to learn it, and w is held.
    """
    return (jax.lax.stop_gradient(correction) * jnp.exp(-energy) + energy).mean()
