"""Logs made by online agents on errands: whole episodes, nothing lost, more on demand."""

import math

import gymnasium
import numpy as np
import pytest
from awkward_envs import Slalom

from corsdice import data
from corsdice.envs import campaign as campaigns
from corsdice.envs import lagrangian
from corsdice.envs.campaign import campaign, errands_for
from corsdice.envs.errands import Errand, episodes_of, progress_of
from corsdice.envs.fleet import Fleet
from corsdice.envs.lagrangian import Multiplier, OpenEpisodes, learn
from corsdice.envs.ppo import Batch, Settings
from corsdice.errors import UserError

SLALOM = "awkward_envs:slalom"
QUICK = Settings(envs=4, rollout=32, epochs=2, minibatches=4, widths=(8,))


def batch_of(**columns):
    rows = {name: np.zeros((4, 2)) for name in Batch._fields} | columns
    return Batch(**rows)


def test_the_multiplier_rises_above_the_limit_and_falls_below_it():
    batch = batch_of(rewards=np.full((4, 2), -3.0), costs=np.array([[0, 2.0]] * 4))
    multiplier, penalty = Multiplier().moved(batch, float("nan"), 10.0)
    assert penalty == 0
    assert multiplier.price == 1.5
    for _ in range(10):
        before = penalty
        multiplier, penalty = multiplier.moved(batch, 15.0, 10.0)
        assert penalty > before
    for _ in range(200):
        multiplier, penalty = multiplier.moved(batch, 5.0, 10.0)
    assert penalty == multiplier.integral == 0
    assert Multiplier(1.0, 2.0).moved(batch_of(), 10.0, 10.0) == (Multiplier(1.0, 2.0), 2.0)


def test_episodes_are_cut_whole_and_in_order():
    envs = [gymnasium.wrappers.TimeLimit(Slalom(), limit) for limit in (5, 7)]
    fleet = Fleet(envs, 0)
    episodes = OpenEpisodes(envs)
    settings = Settings(envs=2, rollout=4)
    agent = lagrangian.start(lagrangian.jax.random.key(0), 2, 1, settings).agent
    logs = []
    for i in range(10):
        episodes.add(fleet.rollout(agent, lagrangian.jax.random.key(i), settings))
        logs += [log] if (log := episodes.take()) else []
    whole = data.check(data.concatenate(logs), action_bounds=(-1, 1))
    assert sorted(set(whole.episodes.lengths.tolist())) == [5, 7]
    assert whole.episodes.lengths.sum() == 8 * 5 + 5 * 7
    # The second observation counts the steps, so an episode with a hole would show.
    np.testing.assert_allclose(whole.observations[whole.episodes.starts, 1], 0)
    follows = ~whole.ends[:-1]
    np.testing.assert_allclose(np.diff(whole.observations[:, 1])[follows], 0.1, atol=1e-6)
    np.testing.assert_array_equal(whole.next_observations[:-1][follows], whole.observations[1:][follows])


def test_an_agent_goes_on_from_its_latest_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(lagrangian, "CHUNK", 1e-9)  # one iteration
    short = Errand("agent", SLALOM, 2.0, 0, str(tmp_path / "agent"), steps=2 * 128)
    learn(short, QUICK)
    first = progress_of(short)
    assert first.chunks == first.iteration == 2
    assert first.steps == 256
    before = data.concatenate(episodes_of(short))
    assert len(before.episodes.starts) == first.episodes
    learn(short, QUICK)  # has nothing left to do
    assert progress_of(short) == first

    longer = Errand("agent", SLALOM, 2.0, 0, str(tmp_path / "agent"), steps=5 * 128)
    learn(longer, QUICK)
    second = progress_of(longer)
    assert second.iteration == 5
    after = data.check(data.concatenate(episodes_of(longer)))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new[: len(old)])
    assert len(after.episodes.starts) == second.episodes > first.episodes


def test_an_agent_learns_what_is_good_and_within_its_limit(tmp_path):
    """Reward is the action; above one half it costs. Reckless earns near 1 a step; safe stays near one half."""
    settings = Settings(envs=8, rollout=64, epochs=4, minibatches=8, learning_rate=3e-3, widths=(16,), log_std=-1.5)
    latest = {}
    for limit in (1.0, 10.0):
        errand = Errand("agent", SLALOM, limit, 0, str(tmp_path / f"{limit:g}"), steps=60 * 512)
        learn(errand, settings)
        latest[limit] = progress_of(errand)
    assert latest[10.0].latest_return > 8
    assert latest[1.0].latest_cost < 4 < latest[10.0].latest_cost
    assert latest[1.0].latest_return < latest[10.0].latest_return


def test_a_campaign_in_processes_gives_all_episodes(tmp_path):
    errands = errands_for(SLALOM, tmp_path / "parts", math.inf, 2, limits=(1.0, 5.0), steps=4096)
    told = []
    logs = data.check(campaign(errands, 2, told.append))
    assert len(logs.episodes.starts) == sum(progress_of(errand).episodes for errand in errands)
    assert told[-1] == [progress_of(errand) for errand in errands]
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("*")}
    again = campaign(errands, 2)
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("*")}
    np.testing.assert_array_equal(again.rewards, logs.rewards)

    elsewhere = errands_for(SLALOM, tmp_path / "others", math.inf, 1, limits=(1.0, 5.0), steps=4096)
    repeated = campaign(elsewhere, 1)
    np.testing.assert_array_equal(repeated.observations, logs.observations)


def test_errands_share_the_time(tmp_path):
    errands = errands_for("BallRun", tmp_path, 600.0, 2)
    assert len(errands) == len(campaigns.SHARES)
    assert sum(errand.seconds for errand in errands) == pytest.approx(1200)
    assert errands[0].limit == pytest.approx(4)
    drivers = errands_for("easysparse", tmp_path, 600.0, 2)
    assert [errand.kind for errand in drivers] == ["drivers"] * 2
    assert {errand.seconds for errand in drivers} == {600.0}
    with pytest.raises(UserError, match="--limits are needed"):
        errands_for("awkward_envs:slalom", tmp_path, 600.0, 2)


def test_damaged_progress_is_told(tmp_path):
    errand = Errand("agent", SLALOM, 2.0, 0, str(tmp_path), steps=1)
    (tmp_path / "progress.json").write_text('{"seconds": 1, "colour": "blue"}')
    with pytest.raises(UserError, match=r"progress\.json is damaged: remove"):
        progress_of(errand)


def test_drivers_are_by_seed_and_number_alone():
    from corsdice.envs.drivers import EXPERTS, SHAKING, SPEEDS, driver

    crowd = [driver(0, i) for i in range(400)]
    assert crowd[7] == driver(0, 7) != driver(1, 7)
    assert np.mean([each.expert for each in crowd]) == pytest.approx(EXPERTS, abs=0.05)
    assert all(SPEEDS[0] <= each.speed <= SPEEDS[1] and 0 <= each.noise <= SHAKING for each in crowd)
    assert math.isclose(np.mean([each.speed for each in crowd]), np.mean(SPEEDS), rel_tol=0.05)
