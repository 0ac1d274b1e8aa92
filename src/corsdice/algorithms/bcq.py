"""BCQ-Lag: candidates that a VAE draws as they were logged, moved a little towards a larger Q - λ Q_c.

Batch-constrained Q-learning (Fujimoto et al., 2019) with a Lagrange multiplier; the best candidate is the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from corsdice.actors import BestOf, Perturbed, logged_like
from corsdice.algorithms import lagrangian
from corsdice.algorithms.contract import Hypers, Metrics, Params
from corsdice.algorithms.lagrangian import State, penalised_value, vae_loss
from corsdice.algorithms.logs import Batch, Logs


@dataclass(frozen=True)
class Config(lagrangian.Config):
    reach: float = 0.05
    """How far a candidate may be moved from what the VAE drew."""

    def proposal(self, actions: int) -> Perturbed:
        return Perturbed(actions, self.widths, self.reach)

    def actor(self, actions: int) -> BestOf:
        return BestOf(self.proposal(actions), self.widths, self.critics, self.candidates, self.caution)


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    return lagrangian.init(config, logs, key, {})


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    actor = config.actor(logs.transitions.actions.shape[-1])
    proposal = config.proposal(actor.actions)

    def improvement(params: Params, held: Params, batch: Batch, key: jax.Array) -> dict[str, jax.Array]:
        vae, perturbation = (params["actor"]["proposal"][name] for name in ("vae", "perturbation"))
        logged = logged_like(proposal.vae, held["proposal"]["vae"], batch.observations, key)
        moved = proposal.perturb(perturbation, batch.observations, logged)
        return {
            "vae_loss": vae_loss(config, proposal.vae, vae, batch, key),
            "policy_loss": -penalised_value(actor, held, batch.observations, moved).mean(),
        }

    return lagrangian.update(config, actor, hypers, logs, state, step, key, improvement)
