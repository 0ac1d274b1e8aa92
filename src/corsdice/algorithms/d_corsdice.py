"""D-CORSDICE: CORSDICE whose policy is a model of the logged actions, brought to π_w = w π_D by w(a|s).

What is estimated is then what ships. ν, Q, λ and a mixture are learned as CORSDICE learns them; the model is fitted
once, before the first update, for all α, limits and seeds. λ must answer to the cost of the policy that ships, whose
actions are dear to draw: the mixture's cost is estimated often, and seldom how much more the policy costs, which is
taken off the limit that the mixture is held to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from corsdice.actors import Acts
from corsdice.algorithms import corsdice, d_bc, semidice
from corsdice.algorithms.contract import Hypers, Metrics, Params, decay
from corsdice.algorithms.episode_cost import EpisodeCost, episode_cost, unknown_cost
from corsdice.algorithms.logs import Batch, Logs, draw_batch
from corsdice.diffusion.actors import Guided, Resampled
from corsdice.diffusion.guidance import learn_energy
from corsdice.diffusion.score import Fit, begin, begin_at, fit_actions, learn_actions

COMPARED_ROWS = 8_000
"""Imagined to compare the policy with the mixture, from the same starts with the same noise."""


@dataclass(frozen=True)
class Config(corsdice.Config, d_bc.ScoreConfig):
    way: Literal["resample", "guide"] = "resample"
    """Draw one of some logged-like candidates in proportion to w, or guide candidates towards w and take the best."""
    candidates: int = 16
    """Actions to choose from."""
    guidance_scale: float = 1.0
    """τ, of the guidance."""
    guidance: Literal["denoising", "energy"] = "denoising"
    """Learned by denoising with weights w, or as the energy of the paper."""
    score_steps: int = 6_000
    """Of the model of the logged actions, at `score_rate`."""
    score_rate: float = 2e-3
    compare_every: int = 4
    """Estimates of the mixture for each comparison with the policy that ships."""

    def actor(self, actions: int) -> Acts:
        behaviour = self.diffused(actions)
        critics = self.widths, self.critics, self.layer_norm
        if self.way == "guide":
            return Guided(behaviour, *critics, self.guidance_scale, self.candidates, self.guidance)
        return Resampled(behaviour, *critics, self.divergence, self.candidates)

    def fit_behaviour(self, logs: Logs) -> Any:
        rows = logs.transitions
        network = self.diffused(rows.actions.shape[-1]).network
        steps, batch, rate = self.score_steps, self.score_batch, self.score_rate
        return fit_actions(network, rows.observations, rows.actions, steps, batch, rate)


class State(NamedTuple):
    corsdice: corsdice.State
    behaviour: Any
    """Of the model of the logged actions; nothing moves it."""
    guide: Fit | None
    """Learns where w leads from the logs, where something guides."""
    alpha: jax.Array
    gap: EpisodeCost
    """What the policy costs beyond the mixture, when they were last compared."""

    @property
    def params(self) -> Params:
        """What guides is always the latest: there is one network for it."""
        if self.guide is not None:
            return {"actor": self.acting(self.corsdice.learned["nu"], self.corsdice.target_q)}
        return {"actor": self.acting(self.corsdice.choice.nu, self.corsdice.choice.q)}

    def acting(self, nu: Params, q: Params) -> Params:
        """The policy by these critics."""
        values = {"behaviour": self.behaviour, "q": q}
        if self.guide is not None:
            return values | {"guide": self.guide.average}
        return values | {"nu": nu, "alpha": self.alpha}


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    rows = logs.transitions
    model_key, guide_key = jax.random.split(jax.random.fold_in(key, 2))
    diffused = config.diffused(rows.actions.shape[-1])
    behaviour = logs.behaviour
    if behaviour is None:  # the shapes alone are asked for, or a checkpoint will tell
        behaviour = diffused.init(model_key, rows.observations[:1])
    guide = None
    if config.way == "guide" and config.guidance == "energy":
        guide = begin(diffused.score_net(1), guide_key, rows.observations, rows.actions)
    elif config.way == "guide":
        guide = begin_at(behaviour)
    return State(
        corsdice.init(config, hypers, logs, key),
        behaviour,
        guide,
        jnp.asarray(config.alpha_factor * hypers.alpha, jnp.float32),
        unknown_cost(),
    )


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    gap = state.gap.value + state.gap.doubt
    held = hypers._replace(episode_limit=hypers.episode_limit - gap / (1 - config.margin))
    learned, metrics = corsdice.update(config, held, logs, state.corsdice, step, key)
    state = state._replace(corsdice=learned)
    if state.guide is not None:
        guide, metrics["guide_loss"] = _learn_guide(
            config, hypers, logs, state, state.guide, step, jax.random.fold_in(key, 1)
        )
        state = state._replace(guide=guide)
    if config.estimate == "closed-form":  # other estimates speak of π_w already
        now = (step > 0) & (step % (config.compare_every * config.estimate_every) == 0)
        compare_key = jax.random.fold_in(key, 2)
        compared = jax.lax.cond(now, lambda: _compare(config, logs, state, compare_key), lambda: state.gap)
        state = state._replace(gap=compared)
        metrics |= {
            "estimated_cost": metrics["estimated_cost"] + compared.value,
            "cost_limit": jnp.asarray(hypers.episode_limit, jnp.float32),
            "gap": compared.value,
        }
    return state, metrics


def _compare(config: Config, logs: Logs, state: State, key: jax.Array) -> EpisodeCost:
    """The policy's cost less the mixture's: what the noise does to both falls out."""
    actions, learned = logs.transitions.actions.shape[-1], state.corsdice.learned
    latest = state.acting(learned["nu"], state.corsdice.target_q)
    ships = episode_cost(config.actor(actions), logs, latest, key, COMPARED_ROWS)
    clone = episode_cost(config.clone(actions), logs, learned["actor"], key, COMPARED_ROWS)
    return jax.tree.map(jnp.subtract, ships, clone)


def _learn_guide(
    config: Config, hypers: Hypers, logs: Logs, state: State, guide: Fit, step: jax.Array, key: jax.Array
) -> tuple[Fit, jax.Array]:
    batch_key, noise_key = jax.random.split(key)
    batch = draw_batch(logs, batch_key, config.score_batch, logs.rows)
    diffused = config.diffused(batch.actions.shape[-1])
    w = semidice.policy_correction(config, hypers, state.corsdice.learned["nu"], state.corsdice.target_q, batch)
    rate = hypers.learning_rate * decay(config, step)
    if config.guidance == "energy":
        return learn_energy(diffused.score_net(1), guide, batch.observations, batch.actions, w, rate, noise_key)
    return learn_actions(diffused.network, guide, batch.observations, batch.actions, rate, noise_key, w)


def corrections(config: Config, hypers: Hypers, logs: Logs, state: State, batch: Batch) -> jax.Array:
    """w(a|s), one for each row."""
    return corsdice.corrections(config, hypers, logs, state.corsdice, batch)
