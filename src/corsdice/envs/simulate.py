"""A saved policy in a simulator, embedded or Gymnasium's: what it really returns and costs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np

from corsdice.envs.embedded import TASKS
from corsdice.envs.processes import simulators
from corsdice.envs.rollout import play
from corsdice.envs.simulators import alone_in_its_process, make
from corsdice.errors import UserError
from corsdice.policy import Act, Policy, PolicyParams

AT_ONCE = 50
"""Environments alive at a time in one process: enough that the policy's call is a small part of a step, few enough that
simulators of tens of MiB each fit into memory."""
SUMS = ("return", "cost", "discounted_return", "discounted_cost")


def simulate(
    policy: Policy, env: str, episodes: int, seed: int = 0, discount: float = 0.99, workers: int = 1
) -> dict[str, Any]:
    """Sums over an episode, undiscounted and Σ γ^t x, means with their standard errors.

    Undiscounted sums end with the episode. Discounted sums of an embedded task run on beyond its time limit, as the
    process does; those of a Gymnasium environment end with its own limit (with 1,000 steps and γ = .99 what is missing
    is 4e-5 of a value). An action, reward or cost that is not finite is an error.

    The numbers depend on `seed` and not on `workers`, the processes that Gymnasium environments are spread over. A
    process imports what an id names before its colon, and knows nothing else that was registered here.
    """
    return simulate_each([policy], env, episodes, seed, discount, workers)[0]


def simulate_each(
    policies: Sequence[Policy], env: str, episodes: int, seed: int = 0, discount: float = 0.99, workers: int = 1
) -> list[dict[str, Any]]:
    """`simulate` of each policy, with processes that are started once."""
    return [_summary(sums) for sums in play_each(policies, env, episodes, seed, discount, workers)]


def play_each(
    policies: Sequence[Policy], env: str, episodes: int, seed: int = 0, discount: float = 0.99, workers: int = 1
) -> list[np.ndarray]:
    """SUMS of each episode of each policy, [episodes, 4]."""
    if env in TASKS:
        return [_embedded(policy, env, episodes, seed, discount) for policy in policies]
    at_once = 1 if alone_in_its_process(env) else AT_ONCE
    rounds = -(-episodes // (workers * at_once))
    parts = min(rounds * workers, episodes)
    groups = [range(episodes * part // parts, episodes * (part + 1) // parts) for part in range(parts)]
    act_out = partial(lockstep, env=env, seed=seed, discount=discount)
    jobs = [(policy, group) for policy in policies for group in groups]
    if workers == 1:
        sums = [act_out(*job) for job in jobs]
    else:
        # The policy travels as NumPy arrays and the actor's description: nothing of this process's JAX.
        sent = [(replace(policy, params=jax.device_get(policy.params)), group) for policy, group in jobs]
        with simulators(min(workers, len(jobs)), env) as pool:
            futures = [pool.submit(act_out, *job) for job in sent]
            for future in as_completed(futures):
                future.result()  # so that an error is told when it happens, not when its turn comes
        sums = [future.result() for future in futures]
    return [np.concatenate(sums[first : first + parts]) for first in range(0, len(sums), parts)]


def _embedded(policy: Policy, env: str, episodes: int, seed: int, discount: float) -> np.ndarray:
    task = TASKS[env]
    _check_fit(policy, env, (task.observation_size,), (task.action_size,))
    return np.stack(play(task, policy.act, policy.params, jax.random.key(seed), episodes, discount), -1)


def _summary(sums: np.ndarray) -> dict[str, Any]:
    errors = sums.std(0, ddof=1) / np.sqrt(len(sums))
    means = dict(zip(SUMS, sums.mean(0).tolist(), strict=True))
    return (
        means | {f"{name}_se": float(error) for name, error in zip(SUMS, errors, strict=True)} | {"episodes": len(sums)}
    )


def lockstep(policy: Policy, episodes: range, env: str, seed: int, discount: float) -> np.ndarray:
    """SUMS of these episodes, at most AT_ONCE in a row: [episodes, 4]. All are stepped side by side.

    The batch has AT_ONCE rows however many episodes are alive, so that it is compiled once, and episode i has row
    i mod AT_ONCE, so that even the rounding of its actions depends on (seed, i) alone.
    """
    key = jax.random.key(seed)
    numbers = np.zeros(AT_ONCE, np.uint32)
    numbers[[i % AT_ONCE for i in episodes]] = episodes
    rows = np.zeros((AT_ONCE, int(np.prod(policy.about["observation_shape"]))), np.float32)
    sums = {i: np.zeros(len(SUMS)) for i in episodes}
    with ExitStack() as stack:
        alive = {i: stack.enter_context(closing(make(env))) for i in episodes}
        for i, environment in alive.items():
            _check_fit(policy, env, environment.observation_space.shape, environment.action_space.shape)
            rows[i % AT_ONCE] = np.ravel(environment.reset(seed=_reset_seed(seed, i))[0])
        for step in count():
            if not np.isfinite(rows).all():
                raise UserError(f"{env} gives observations that are not finite: mend it, or wrap it so that they are")
            actions = np.asarray(_actions(policy.act, policy.params, key, numbers, np.uint32(step), rows))
            for i, environment in list(alive.items()):
                action = actions[i % AT_ONCE].reshape(policy.about["action_shape"])
                if not np.isfinite(action).all():
                    raise UserError(
                        f"the policy gives actions in {env} that are not finite: it has no return and no cost"
                    )
                observation, reward, terminated, truncated, info = environment.step(action)
                if "cost" not in info:
                    raise UserError(f'{env} gives no info["cost"]: wrap it so that every step does')
                earned = np.array([reward, info["cost"]], float)
                if not np.isfinite(earned).all():
                    raise UserError(f"{env} gives a reward or cost that is not finite: mend it, or wrap it")
                sums[i] += np.concatenate([earned, discount**step * earned])
                rows[i % AT_ONCE] = np.ravel(observation)
                if terminated or truncated:
                    del alive[i]
            if not alive:
                break
    return np.stack(list(sums.values()))


@partial(jax.jit, static_argnames="act")
def _actions(
    act: Act, params: PolicyParams, key: jax.Array, episodes: jax.Array, step: jax.Array, rows: jax.Array
) -> jax.Array:
    """The noise of episode i at step t depends on (key, i, t) alone."""

    def one(episode: jax.Array, row: jax.Array) -> jax.Array:
        return act(params, jax.random.fold_in(jax.random.fold_in(key, episode), step), row)

    return jax.vmap(one)(episodes, rows)


def _reset_seed(seed: int, episode: int) -> int:
    """A 32-bit number, which every simulator takes."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def _check_fit(policy: Policy, env: str, observations: tuple[int, ...] | None, actions: tuple[int, ...] | None) -> None:
    for what, shape in (("observation", observations), ("action", actions)):
        trained = tuple(policy.about[f"{what}_shape"])
        if trained != shape:
            raise UserError(f"the policy's {what}s have shape {trained}, those of {env} {shape}: choose another --env")
