"""BEAR-Lag: a Gaussian policy towards a larger Q - λ Q_c, held to the support of the logs (Kumar et al., 2019).

What holds it is the maximum mean discrepancy between its actions and those that a VAE draws as they were logged, both
before tanh, with a dual variable of its own. Of some of its draws the best is the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from corsdice import losses
from corsdice.actors import LATENT_CLIP, BestOf
from corsdice.algorithms import lagrangian
from corsdice.algorithms.contract import Hypers, Metrics, Params
from corsdice.algorithms.lagrangian import State, penalised_value, vae_loss
from corsdice.algorithms.logs import Batch, Logs
from corsdice.networks import VAE, Actor

LARGEST_LOG_WEIGHT = 5.0


@dataclass(frozen=True)
class Config(lagrangian.Config):
    discrepancy: float = 0.05
    """How far from the logs the policy may be."""
    kernel_width: float = 50.0
    compared: int = 10
    """Actions of either kind in each state."""

    def proposal(self, actions: int) -> Actor:
        return Actor(actions, self.widths, components=1, squash=True)

    def actor(self, actions: int) -> BestOf:
        return BestOf(self.proposal(actions), self.widths, self.critics, self.candidates, self.caution)


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    rows = logs.transitions
    actor_key, vae_key = jax.random.split(key)
    vae = VAE(rows.actions.shape[-1], config.widths).init(vae_key, rows.observations[:1], rows.actions[:1])
    return lagrangian.init(config, logs, actor_key, {"vae": vae, "log_weight": jnp.zeros(())})


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    actor = config.actor(logs.transitions.actions.shape[-1])
    proposal = config.proposal(actor.actions)
    vae = VAE(actor.actions, config.widths)

    def improvement(params: Params, held: Params, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
        vae_key, own_key, logged_key = jax.random.split(key, 3)
        mixture = proposal.apply(params["actor"]["proposal"], batch.observations)
        mean, std = mixture.means[:, 0], jnp.exp(mixture.log_stds[:, 0])
        own = mean + std * jax.random.normal(own_key, (config.compared, *mean.shape))
        latents = jax.random.normal(logged_key, (config.compared, len(mean), vae.latents))
        observations = jnp.broadcast_to(batch.observations, (config.compared, *batch.observations.shape))
        latents = jnp.clip(latents, -LATENT_CLIP, LATENT_CLIP)
        logged = vae.apply(jax.lax.stop_gradient(params["vae"]), observations, latents, method="decode")
        distance = losses.maximum_mean_discrepancy(own, logged, config.kernel_width).mean() - config.discrepancy
        weight = jnp.exp(params["log_weight"])
        value = penalised_value(actor, held, observations, jnp.tanh(own)).mean()
        return {
            "vae_loss": vae_loss(config, vae, params["vae"], batch, vae_key),
            "policy_loss": jax.lax.stop_gradient(weight) * distance - value,
            "weight_loss": -weight * jax.lax.stop_gradient(distance),
        }

    after, metrics = lagrangian.update(config, actor, hypers, logs, state, step, key, improvement)
    log_weight = jnp.clip(after.params["log_weight"], -LARGEST_LOG_WEIGHT, LARGEST_LOG_WEIGHT)
    return after._replace(params=after.params | {"log_weight": log_weight}), metrics
