"""What CORSDICE believes of the actor's cost while it learns, against simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import envs
from corsdice.algorithms.choice import UNJUDGED, better, judge, unjudged
from corsdice.algorithms.contract import decay, move_multiplier
from corsdice.algorithms.corsdice import judged
from corsdice.algorithms.episode_cost import EpisodeCost, episode_cost
from corsdice.dynamics import STRANGE
from corsdice.envs.simulate import simulate
from corsdice.training.run import Trainer, plan_of

TASK = envs.TASKS["point-run"]
MODEL_ERROR = 3.0
"""Of a speed that is off by some hundredths, at the speed where cost begins: see tests/ope/test_dynamics.py."""
SMALL = {"steps": 300, "widths": (16,), "waves": 100, "batch_size": 64}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(TASK, 0, 200)


@pytest.fixture(scope="module")
def trainer(logs):
    """Four members that have learned a little: two seeds with two limits, side by side."""
    trainer = Trainer(plan_of("corsdice", logs, [10.0, 60.0], seeds=2, chunk=300, options=SMALL, mode="vmap"), logs)
    trainer.advance()
    return trainer


def estimated(trainer, index, **changes):
    params = jax.tree.map(lambda leaf: leaf[index], trainer.outcome.states.params["actor"])
    logs = trainer.logs._replace(**changes)
    return jax.device_get(episode_cost(trainer.plan.config.actor(2), logs, params, jax.random.key(0)))


def test_the_estimate_is_the_simulated_cost(trainer):
    """Within three standard errors of 400 imagined and 400 simulated episodes, and what the model itself errs by."""
    assert trainer.logs.model is not None
    for index in range(2):
        truth = simulate(trainer.outcome.policy(index), "point-run", 400, 1)
        assert abs(estimated(trainer, index).value - truth["cost"]) <= 3 * truth["cost_se"] * np.sqrt(2) + MODEL_ERROR


def test_what_is_strange_is_held_to_cost_the_most(trainer):
    model = trainer.logs.model
    for usual, share in ((np.inf, 0.0), (0.0, 1 - STRANGE)):
        changed = model._replace(usual=jnp.float32(usual))
        assert estimated(trainer, 0, model=changed).doubt == pytest.approx(share * TASK.horizon)


def test_without_a_model_nothing_is_imagined_and_nothing_doubted(trainer):
    assert estimated(trainer, 0, model=None).doubt == 0


def test_a_population_estimates_as_its_members_do_alone(trainer):
    keys = jnp.stack([jax.random.key(0)] * 4)
    actor = trainer.plan.config.actor(2)
    of_all = jax.jit(jax.vmap(lambda params, key: episode_cost(actor, trainer.logs, params, key)))(
        trainer.outcome.states.params["actor"], keys
    )
    alone = [estimated(trainer, index) for index in range(4)]
    np.testing.assert_allclose(of_all.value, [each.value for each in alone], rtol=1e-3)
    np.testing.assert_allclose(of_all.doubt, [each.doubt for each in alone], rtol=1e-3)


def test_lambda_sees_the_doubt(logs, trainer):
    """Two trainings that differ in what counts as strange alone: where all does, λ is larger.

    No episode costs more than its 100 steps, which is within what is aimed at; with the doubt, of 99 more, all do.
    """
    plan = plan_of("corsdice", logs, [120.0], chunk=100, options=SMALL | {"steps": 100})
    multipliers = []
    for usual in (np.inf, 0.0):
        other = Trainer(plan, logs)
        other.logs = trainer.logs._replace(model=trainer.logs.model._replace(usual=jnp.float32(usual)))
        other.advance()
        multipliers.append(float(other.outcome.states.multiplier[0]))
    assert multipliers[0] == 0 < multipliers[1]


def test_lambda_gets_beyond_its_scale_where_it_has_to(logs, trainer):
    """A run that is over its limit from the first step to the last: by steps of one size λ would end at the scale."""
    config, hypers = trainer.plan.config, of_the_first(trainer)
    scale, far_over = hypers.alpha / (1 - hypers.discount), jnp.float32(1e3)

    def step(multiplier, number):
        slowing = hypers._replace(multiplier_rate=hypers.multiplier_rate * decay(config, number))
        after = move_multiplier(config, slowing, trainer.logs, multiplier, far_over)
        return after, after - multiplier

    end, steps = jax.lax.scan(step, jnp.float32(0.0), jnp.arange(config.steps))
    full = steps / decay(config, jnp.arange(config.steps))
    low = jnp.cumsum(steps) < scale / 3
    assert 0 < low.sum() < config.steps
    np.testing.assert_allclose(full[low], full[0], rtol=1e-2)
    assert end > 2 * scale


def test_a_batch_without_any_weight_tells_nothing_and_breaks_nothing(logs):
    """χ² and an α so small that w is 0 in whole batches: diagnosed are the others, and training goes on."""
    options = SMALL | {"steps": 20, "layer_norm": True}
    small = Trainer(plan_of("f-dvl", logs, [20.0], alphas=[1e-4], chunk=1, options=options), logs)
    seen = [small.advance()[-1] for _ in range(20)]
    assert any(row["mean_policy_correction"] == 0 for row in seen)
    assert not small.outcome.failures
    assert all(np.isfinite(row["estimated_cost"]) for row in seen)


def test_what_is_safe_by_less_than_its_error_is_not_safe(logs, trainer):
    config, hypers = trainer.plan.config, of_the_first(trainer)._replace(episode_limit=20.0)
    policy = unjudged({}, {}, {})
    for error, safe in ((0.0, 1.0), (0.9, 1.0), (1.1, 0.0)):  # 18 is aimed at
        cost = EpisodeCost(*map(jnp.float32, (17.0, 0.0, 5.0, error)))
        found = judged(config, hypers, trainer.logs, policy, cost, jnp.int32(config.steps - 1), jnp.array(True))
        assert found.safe == safe


def test_the_best_safe_policy_ships_or_else_the_cheapest():
    """In the order in which a run might meet them."""
    so_far, shipped = unjudged({"w": jnp.float32(0)}, {}, {}), []
    met = [
        (1, None, None),  # as long as none is judged, the latest
        (2, 3.0, 100.0),  # over what is aimed at, by 3
        (3, 1.0, 50.0),  # by less
        (4, 2.0, 900.0),
        (5, -8.0, 10.0),  # safe
        (6, -1.0, 20.0),  # safe, and returns more
        (7, -9.0, 15.0),
        (8, 0.5, 999.0),
        (9, None, None),  # not judged
    ]
    for mark, violation, returned in met:
        latest = unjudged({"w": jnp.float32(mark)}, {}, {})
        if violation is not None:
            latest = judge(latest, jnp.float32(violation), jnp.float32(returned), jnp.array(True))
        so_far = better(so_far, latest)
        shipped.append(int(so_far.actor["w"]))
    assert shipped == [1, 2, 3, 3, 5, 6, 6, 6, 6]


def test_only_the_second_half_is_judged_and_the_end_always(logs, trainer):
    """An estimate each 20 of 50 steps, and a limit that everything meets: what ships was learned at 40 or 49."""
    options = SMALL | {"steps": 50, "estimate_every": 20}
    halves = Trainer(plan_of("corsdice", logs, [1000.0], chunk=25, options=options), logs)
    halves.logs = trainer.logs
    halves.advance()
    assert halves.outcome.states.choice.merit[0] == np.float32(UNJUDGED)
    assert_same(halves.outcome.states.choice.actor, halves.outcome.states.learned["actor"])
    halves.advance()
    assert halves.outcome.states.choice.safe[0] == 1
    assert halves.outcome.states.choice.merit[0] >= halves.outcome.states.cost.returned[0]
    assert_same(halves.outcome.states.params["actor"], halves.outcome.states.choice.actor)


def of_the_first(trainer):
    return jax.tree.map(lambda leaf: leaf[0], trainer.hypers)


def assert_same(tree, other):
    jax.tree.map(np.testing.assert_array_equal, tree, other)
