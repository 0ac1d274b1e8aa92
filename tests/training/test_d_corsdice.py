"""D-CORSDICE: one model of the logged actions for a whole run, and λ that answers to the policy that ships."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corsdice
from corsdice import envs
from corsdice.algorithms import d_corsdice
from corsdice.algorithms.episode_cost import EpisodeCost
from corsdice.training import directory
from corsdice.training.run import Trainer, plan_of

SMALL = {"steps": 20, "widths": (8,), "waves": 16, "batch_size": 16, "use_model": False, "estimate_every": 5}
SCORE = {"score_width": 8, "blocks": 2, "time_embedding": 4, "condition_embedding": 8, "score_batch": 16}
FEW = SMALL | SCORE | {"score_steps": 10, "solver_steps": 3, "candidates": 4, "compare_every": 2}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def plan(logs, **options):
    return plan_of("d-corsdice", logs, [40.0], alphas=[0.3, 3.0], chunk=10, options=FEW | options)


def test_all_members_share_a_model_that_nothing_moves(logs):
    trainer = Trainer(plan(logs, estimate="none"), logs)
    trainer.advance()
    first = trainer.outcome.states.behaviour
    trainer.advance()
    fitted = trainer.plan.config.fit_behaviour(trainer.logs)
    for found in (first, trainer.outcome.states.behaviour):
        jax.tree.map(lambda leaf, one: np.testing.assert_array_equal(leaf, jnp.stack([one, one])), found, fitted)


@pytest.mark.parametrize("guidance", ["denoising", "energy"])
def test_a_resumed_run_ends_bit_identical_and_fits_nothing_again(logs, tmp_path, monkeypatch, guidance):
    """Guided: what guides learns, and its policy is told by files as well."""
    guided = plan(logs, way="guide", guidance=guidance, estimate="none")
    whole = directory.train(tmp_path / "whole", guided, logs, "memory")

    def interrupt(step, rows, fresh):
        if step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        directory.train(tmp_path / "part", guided, logs, "memory", interrupt)
    monkeypatch.setattr(d_corsdice, "fit_actions", lambda *arguments: pytest.fail("fitted again"))
    resumed = directory.train(tmp_path / "part", guided, logs, "memory")
    jax.tree.map(np.testing.assert_array_equal, resumed.states, whole.states)
    assert all((leaf != 0).any() for leaf in jax.tree.leaves(whole.states.guide.optimiser.mu))
    loaded = corsdice.load(tmp_path / "part" / "policies" / guided.members[0].name)
    actions = [policy.seed(0).predict(logs.observations[:5]) for policy in (loaded, whole.policy(0))]
    np.testing.assert_array_equal(*actions)
    again = directory.load_outcome(tmp_path / "part", logs)
    jax.tree.map(np.testing.assert_array_equal, again.states, whole.states)


@pytest.mark.parametrize("sign", [-1, 1])
def test_what_ships_is_chosen_by_estimates_of_the_policy_itself(logs, monkeypatch, sign):
    """Judged at the updates 10 and 19, here by the size of its ν, one way or the other: the mixture is not asked."""
    jax.clear_caches()  # a program of the same settings has the other sign in it

    def merit(nu):
        return sign * sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(nu))

    def own(actor, logs, params, key, rows):
        return EpisodeCost(jnp.float32(0), jnp.float32(0), merit(params["nu"]), jnp.float32(0))

    monkeypatch.setattr(d_corsdice, "episode_cost", own)
    trainer = Trainer(plan_of("d-corsdice", logs, [1e6], chunk=1, options=FEW), logs)
    met = []
    while not trainer.outcome.done:
        trainer.advance()
        met.append(jax.tree.map(lambda leaf: leaf[0], trainer.outcome.states))
    best = max((met[10], met[19]), key=lambda state: float(merit(state.corsdice.learned["nu"])))
    jax.tree.map(np.testing.assert_array_equal, met[-1].choice.nu, best.corsdice.learned["nu"])
    jax.tree.map(np.testing.assert_array_equal, met[-1].params["actor"]["q"], best.corsdice.target_q)


def test_lambda_answers_to_what_the_policy_costs_beyond_the_mixture(logs):
    """One step from the same state: the dearer the policy is said to be, the further λ rises; the limit stays."""
    trainer = Trainer(plan(logs), logs)
    trainer.advance()
    config = trainer.plan.config
    hypers, state = jax.tree.map(lambda leaf: leaf[0], (trainer.hypers, trainer.outcome.states))
    update = jax.jit(
        lambda state: d_corsdice.update(config, hypers, trainer.logs, state, jnp.int32(1), jax.random.key(0))
    )
    base = state.corsdice._replace(multiplier=jnp.float32(1.0), cost=EpisodeCost(jnp.float32(36.0), *jnp.zeros(3)))
    found = {}
    for gap in (-20.0, 0.0, 20.0):
        before = state._replace(corsdice=base, gap=EpisodeCost(jnp.float32(gap), *jnp.zeros(3)))
        after, metrics = update(before)
        found[gap] = float(after.corsdice.multiplier)
        assert metrics["estimated_cost"] == pytest.approx(36.0 + gap)
        assert metrics["cost_limit"] == pytest.approx(40.0)
    assert found[0.0] == pytest.approx(1.0, abs=1e-4)  # at nine tenths of the limit, the margin
    assert found[-20.0] < 1.0 < found[20.0]
