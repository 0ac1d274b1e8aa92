"""D-CORSDICE: the family with a diffusion way to act.

It is a model of the logged actions, fitted once before the first update, and brought to π_w = w π_D by w(a|s,λ): by
drawing one of its candidates in proportion to w, or by guidance learned from w. All else is the family's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from corsdice.actors import Acts, Conditional
from corsdice.algorithms import d_bc, family, semidice
from corsdice.algorithms.contract import Hypers, Metrics, Params, decay
from corsdice.algorithms.logs import Logs, draw_batch
from corsdice.conditions import MULTIPLIER_FEATURES, conditioned, multiplier_features
from corsdice.diffusion.actors import Guided, Resampled
from corsdice.diffusion.guidance import learn_energy
from corsdice.diffusion.score import Fit, begin, begin_at, fit_actions, learn_actions


@dataclass(frozen=True)
class Config(family.Config, d_bc.ScoreConfig):
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
    imagined_rows: int = 20_000

    def ways(self, actions: int) -> dict[str, Conditional]:
        behaviour = self.diffused(actions)
        critics = self.widths, self.critics, self.layer_norm
        actor: Acts = Resampled(behaviour, *critics, self.divergence, self.candidates, of_family=True)
        if self.way == "guide":
            actor = Guided(behaviour, *critics, self.guidance_scale, self.candidates, self.guidance)
        return super().ways(actions) | {self.way: Conditional(actor, MULTIPLIER_FEATURES)}

    def fit_behaviour(self, logs: Logs) -> Any:
        rows = logs.transitions
        network = self.diffused(rows.actions.shape[-1]).network
        steps, batch, rate = self.score_steps, self.score_batch, self.score_rate
        # It learns that the actions were logged whatever λ is asked for, so that a guide can begin at it.
        asked = multiplier_features(jax.random.uniform(jax.random.key(0), (len(rows.actions),)))
        return fit_actions(network, conditioned(rows.observations, asked), rows.actions, steps, batch, rate)


class State(NamedTuple):
    family: family.State
    behaviour: Any
    """Of the model of the logged actions; nothing moves it."""
    guide: Fit | None
    """Learns where w leads from the logs, where something guides."""

    @property
    def params(self) -> Params:
        return self.family.params


def init(config: Config, hypers: Hypers, logs: Logs, key: jax.Array) -> State:
    rows = logs.transitions
    model_key, guide_key = jax.random.split(jax.random.fold_in(key, 2))
    diffused = config.diffused(rows.actions.shape[-1])
    asked = conditioned(rows.observations[:1], multiplier_features(jnp.zeros(1)))
    behaviour = logs.behaviour
    if behaviour is None:  # the shapes alone are asked for, or a checkpoint will tell
        behaviour = diffused.init(model_key, asked)
    guide = None
    if config.way == "guide" and config.guidance == "energy":
        guide = begin(diffused.score_net(1), guide_key, asked, rows.actions[:1])
    elif config.way == "guide":
        guide = begin_at(behaviour)
    return State(family.init(config, hypers, logs, key), behaviour, guide)


def update(
    config: Config, hypers: Hypers, logs: Logs, state: State, step: jax.Array, key: jax.Array
) -> tuple[State, Metrics]:
    learned, metrics = family.update(config, hypers, logs, state.family, step, key)
    state = state._replace(family=learned)
    if state.guide is not None:
        guide, metrics["guide_loss"] = _learn_guide(
            config, hypers, logs, learned, state.guide, step, jax.random.fold_in(key, 1)
        )
        state = state._replace(guide=guide)
    return state, metrics


def _learn_guide(
    config: Config, hypers: Hypers, logs: Logs, learned: family.State, guide: Fit, step: jax.Array, key: jax.Array
) -> tuple[Fit, jax.Array]:
    batch_key, multiplier_key, noise_key = jax.random.split(key, 3)
    position = jax.random.uniform(multiplier_key, (config.score_batch,))
    drawn = draw_batch(logs, batch_key, config.score_batch, logs.rows)
    batch, _, alpha = family.ask(hypers, logs, drawn, position)
    diffused = config.diffused(batch.actions.shape[-1])
    w = semidice.policy_correction(
        config, learned.params["nu"], learned.target_q, batch.observations, batch.actions, alpha
    )
    rate = hypers.learning_rate * decay(config, step)
    if config.guidance == "energy":
        return learn_energy(diffused.score_net(1), guide, batch.observations, batch.actions, w, rate, noise_key)
    return learn_actions(diffused.network, guide, batch.observations, batch.actions, rate, noise_key, w)


def networks(state: State, alpha: Any) -> dict[str, Params]:
    """What acts, by the names of the ways."""
    values = {"behaviour": state.behaviour, "q": state.family.target_q}
    if state.guide is not None:
        diffusion = {"guide": values | {"guide": state.guide.average}}
    else:
        diffusion = {"resample": values | {"nu": state.family.params["nu"], "alpha": jnp.asarray(alpha, jnp.float32)}}
    return family.networks(state.family, alpha) | diffusion
