"""Corrections by networks: the paper's extraction, DualDICE and IHOPE."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from corsdice import divergences, losses
from corsdice.networks import Critic
from corsdice.ope.networks import Params, Rows, Starts

held_fixed = jax.lax.stop_gradient


@dataclass(frozen=True)
class DualDICE:
    """min_ν max_ζ E_D[ζ (ν(s,a) - γ ν(s',a')) - ζ²/2] - (1-γ) E[ν(s_0,a_0)] (Nachum et al., 2019); ζ is w(s,a).

    Rates and momentum as its authors' code has them.
    """

    momentum: float = 0.0
    following: float = 1.0
    corrected = False

    @property
    def rates(self) -> dict[str, float]:
        return {"nu": 1e-4, "zeta": 1e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        nu_key, zeta_key = jax.random.split(key)
        pair = rows.pairs[:1]
        return {"nu": Critic(widths).init(nu_key, pair), "zeta": Critic(widths).init(zeta_key, pair)}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        network = Critic(widths)
        n = len(rows.alive)
        stacked = jnp.concatenate([rows.pairs, rows.next_pairs, starts.pairs])
        nu = network.apply(params["nu"], stacked)[0]
        error = nu[:n] - discount * rows.alive * nu[n : 2 * n]
        zeta = self.weights(params, rows, widths, discount)
        return (
            (held_fixed(zeta) * error).mean()
            - (1 - discount) * nu[2 * n :].mean()
            - (zeta * held_fixed(error) - zeta**2 / 2).mean()
        )

    def weights(self, params: Params, rows: Rows, widths: tuple[int, ...], discount: float) -> jax.Array:
        return 1 + Critic(widths).apply(params["zeta"], rows.pairs)[0]


@dataclass(frozen=True)
class IHOPE:
    """The state's correction from the policy's, by a saddle point (Liu et al., 2018), in its discounted form:

    min_w max_f L(w, f) - E_D[f(s)²]/2,   L = E_D[w(s) (γ w(a|s) f(s') - f(s))] + (1-γ) E[f(s_0)],

    with w(s) positive and w(s) w(a|s) of the mass that the flow gives it (`losses.corrected_mean`).
    """

    momentum: float = 0.9
    following: float = 1.0
    corrected = True

    @property
    def rates(self) -> dict[str, float]:
        return {"w": 1e-3, "f": 1e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        w_key, f_key = jax.random.split(key)
        state = rows.observations[:1]
        return {"w": Critic(widths).init(w_key, state), "f": Critic(widths).init(f_key, state)}

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        n = len(rows.alive)
        stacked = jnp.concatenate([rows.observations, rows.next_observations, starts.observations])
        f = Critic(widths).apply(params["f"], stacked)[0]
        flow = discount * rows.alive * rows.policy_correction * f[n : 2 * n] - f[:n]
        w = self._state_weights(params, rows, widths, discount)
        lagrangian = (held_fixed(w) * flow).mean() + (1 - discount) * f[2 * n :].mean() - (f[:n] ** 2).mean() / 2
        return (w * held_fixed(flow)).mean() - lagrangian

    def _state_weights(self, params: Params, rows: Rows, widths: tuple[int, ...], discount: float) -> jax.Array:
        w = jax.nn.softplus(Critic(widths).apply(params["w"], rows.observations)[0])
        ended = 1 + discount / (1 - discount) * (1 - rows.alive)
        return w / (w * rows.policy_correction * ended).mean()

    def weights(self, params: Params, rows: Rows, widths: tuple[int, ...], discount: float) -> jax.Array:
        return self._state_weights(params, rows, widths, discount) * rows.policy_correction


@dataclass(frozen=True)
class Extraction:
    """The paper's: A follows w(a|s) ê_μ, μ descends its loss, w(s) = max(0, (f')^-1(A(s)))."""

    divergence: str = "soft-chi2"
    momentum: float = 0.9
    following: float = 1.0
    corrected = True

    @property
    def rates(self) -> dict[str, float]:
        return {"a": 1e-3, "mu": 1e-3, "constant": 1e-3}

    def init(self, key: jax.Array, widths: tuple[int, ...], rows: Rows) -> Params:
        a_key, mu_key = jax.random.split(key)
        state = rows.observations[:1]
        return {
            "a": Critic(widths).init(a_key, state),
            "mu": Critic(widths).init(mu_key, state),
            "constant": jnp.zeros(()),
        }

    def loss(
        self, params: Params, held: Params, rows: Rows, starts: Starts, widths: tuple[int, ...], discount: float
    ) -> jax.Array:
        network = Critic(widths)
        n = len(rows.alive)
        stacked = jnp.concatenate([rows.observations, rows.next_observations, starts.observations])
        mu = network.apply(params["mu"], stacked)[0]
        terms, _ = losses.extraction_losses(
            divergences.by_name(self.divergence),
            network.apply(params["a"], rows.observations)[0],
            (mu[:n], mu[n : 2 * n], mu[2 * n :]),
            params["constant"],
            rows.policy_correction,
            rows.alive,
            discount,
        )
        return terms["a_loss"] + terms["mu_loss"]

    def weights(self, params: Params, rows: Rows, widths: tuple[int, ...], discount: float) -> jax.Array:
        a = Critic(widths).apply(params["a"], rows.observations)[0] - params["constant"]
        return divergences.by_name(self.divergence).weight(a) * rows.policy_correction
