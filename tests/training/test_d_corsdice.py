"""D-CORSDICE: one model of the logged actions for a whole run, and a family that acts by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import corsdice
from corsdice import envs
from corsdice.algorithms import d_corsdice
from corsdice.conditions import Point
from corsdice.ope.estimate import Interval, Risk
from corsdice.ope.frontier import FrontierPoint
from corsdice.training import directory
from corsdice.training.run import Trainer, plan_of

SMALL = {"steps": 20, "widths": (8,), "batch_size": 16}
SCORE = {"score_width": 8, "blocks": 2, "time_embedding": 4, "condition_embedding": 8, "score_batch": 16}
FEW = SMALL | SCORE | {"score_steps": 10, "solver_steps": 3, "candidates": 4}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


def plan(logs, **options):
    return plan_of("d-corsdice", logs, [], alphas=[0.3, 3.0], chunk=10, options=FEW | options)


def test_all_members_share_a_model_that_nothing_moves(logs):
    trainer = Trainer(plan(logs), logs)
    trainer.advance()
    first = trainer.outcome.states.behaviour
    trainer.advance()
    fitted = trainer.plan.config.fit_behaviour(trainer.logs)
    for found in (first, trainer.outcome.states.behaviour):
        jax.tree.map(lambda leaf, one: np.testing.assert_array_equal(leaf, jnp.stack([one, one])), found, fitted)


@pytest.mark.parametrize("guidance", ["denoising", "energy"])
def test_a_resumed_run_ends_bit_identical_and_fits_nothing_again(logs, tmp_path, monkeypatch, guidance):
    """Guided: what guides learns, and its policy is told by files as well."""
    guided = plan(logs, way="guide", guidance=guidance)
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
    unknown = Interval(0.0, 0.0, 0.0)
    point = FrontierPoint(1, Point("guide", 3.0), unknown, unknown, 0.0, Risk(unknown, unknown))
    families = corsdice.load(tmp_path / "part" / directory.FAMILY), whole.family()
    actions = [family.policy(point).seed(0).predict(logs.observations[:5]) for family in families]
    np.testing.assert_array_equal(*actions)
    again = directory.load_outcome(tmp_path / "part", logs)
    jax.tree.map(np.testing.assert_array_equal, again.states, whole.states)
