"""D-CORSDICE: CORSDICE whose policy is a model of the logged actions, brought to π_w = w π_D by w(a|s).

What is estimated is then what ships. ν, Q, λ and a mixture are learned as CORSDICE learns them; the model is fitted
once, before the first update, for all α, limits and seeds. λ must answer to the cost of the policy that ships, whose
actions are dear to draw: the mixture's cost is estimated often, and seldom the policy's own; how much more it is than
the mixture's is taken off the limit that the mixture is held to. What ships is chosen by the policy's own estimates
alone: the mixture follows the critics late, and what it says of them is old (a policy of point-run cost 14 at 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from corsdice.actors import Acts
from corsdice.algorithms import corsdice, d_bc, semidice
from corsdice.algorithms.choice import Choice, better, unjudged
from corsdice.algorithms.contract import Hypers, Metrics, Params, decay
from corsdice.algorithms.episode_cost import EpisodeCost, episode_cost, unknown_cost, upper
from corsdice.algorithms.logs import Batch, Logs, draw_batch
from corsdice.diffusion.actors import Guided, Resampled
from corsdice.diffusion.guidance import learn_energy
from corsdice.diffusion.score import Fit, begin, begin_at, fit_actions, learn_actions

OWN_ROWS = 20_000
"""Imagined of the policy that ships, half of the mixture's: each is a model's draws of all its candidates."""


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
    compare_every: int = 2
    """Estimates of the mixture for each of the policy that ships."""

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
    choice: Choice
    """What ships; its actor is what guides, where something does."""

    @property
    def params(self) -> Params:
        return {"actor": self.acting(self.choice)}

    def acting(self, choice: Choice) -> Params:
        values = {"behaviour": self.behaviour, "q": choice.q}
        if self.guide is not None:
            return values | {"guide": choice.actor}
        return values | {"nu": choice.nu, "alpha": self.alpha}

    @property
    def latest(self) -> Choice:
        guide = {} if self.guide is None else self.guide.average
        return unjudged(guide, self.corsdice.learned["nu"], self.corsdice.target_q)


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
    learned = corsdice.init(config, hypers, logs, key)
    alpha = jnp.asarray(config.alpha_factor * hypers.alpha, jnp.float32)
    state = State(learned, behaviour, guide, alpha, unknown_cost(), learned.choice)
    return state._replace(choice=state.latest)


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    held = hypers._replace(episode_limit=hypers.episode_limit - upper(state.gap) / (1 - config.margin))
    learned, metrics = corsdice.update(config, held, logs, state.corsdice, step, key)
    state = state._replace(corsdice=learned)
    if state.guide is not None:
        guide, metrics["guide_loss"] = _learn_guide(
            config, hypers, logs, state, state.guide, step, jax.random.fold_in(key, 1)
        )
        state = state._replace(guide=guide)
    latest = state.latest
    if config.estimate == "closed-form":  # other estimates speak of π_w already
        turn = (step > 0) & (step % (config.compare_every * config.estimate_every) == 0)
        now = turn | (step == config.steps - 1)  # the mixture's estimate is of this step, too
        actor, own_key = config.actor(logs.transitions.actions.shape[-1]), jax.random.fold_in(key, 2)
        own = jax.lax.cond(
            now, lambda: episode_cost(actor, logs, state.acting(latest), own_key, OWN_ROWS), unknown_cost
        )
        fresh = jax.tree.map(jnp.subtract, own, learned.cost)
        state = state._replace(gap=jax.tree.map(partial(jnp.where, now), fresh, state.gap))
        latest = corsdice.judged(config, hypers, logs, latest, own, step, now)
        metrics |= {
            "estimated_cost": metrics["estimated_cost"] + state.gap.value,
            "cost_limit": jnp.asarray(hypers.episode_limit, jnp.float32),
            "gap": state.gap.value,
        }
    return state._replace(choice=better(state.choice, latest)), metrics


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
    return semidice.policy_correction(config, hypers, state.choice.nu, state.choice.q, batch)
