"""Logs made by online agents on errands: whole episodes, nothing lost, more on demand."""

import math
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from awkward_envs import Slalom

from corsdice import data
from corsdice.cli import main
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


def test_every_environment_of_a_fleet_has_a_seed_of_its_own_of_32_bits(monkeypatch):
    """Bullet's take no more, and after some chunks a product of two seeds is more."""
    seeds = []
    monkeypatch.setattr(Slalom, "reset", lambda self, *, seed, options=None: (seeds.append(seed), [np.zeros(2)])[1])
    for chunks in (0, 10_000):
        Fleet([Slalom() for _ in range(3)], (7, chunks))
    assert len(set(seeds)) == 6
    assert all(0 <= seed < 2**32 for seed in seeds)


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


def test_a_killed_agent_loses_no_more_than_a_chunk(tmp_path):
    errand = Errand("agent", SLALOM, 2.0, 0, str(tmp_path / "agent"), steps=40 * 128)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from math import inf\n"
        "from corsdice.envs import lagrangian\n"
        "from corsdice.envs.errands import Errand\n"
        "from corsdice.envs.ppo import Settings\n"
        f"lagrangian.CHUNK = 1e-9; lagrangian.learn({errand!r}, {QUICK!r})"
    )
    worker = subprocess.Popen([sys.executable, "-c", script, str(Path(__file__).parent)])
    try:
        deadline = time.monotonic() + 120
        while progress_of(errand).chunks < 3 and time.monotonic() < deadline:
            assert worker.poll() is None
            time.sleep(0.02)
    finally:
        worker.kill()
        worker.wait()
    left = progress_of(errand)
    assert 3 <= left.chunks < 40
    kept = data.check(data.concatenate(episodes_of(errand)))
    assert len(kept.episodes.starts) == left.episodes
    learn(errand, QUICK)
    whole = data.check(data.concatenate(episodes_of(errand)))
    np.testing.assert_array_equal(whole.observations[: kept.transitions], kept.observations)
    assert progress_of(errand).iteration == 40


def test_the_command_collects_thins_and_says_where_logs_come_from(tmp_path, capsys):
    out = tmp_path / "slalom.hdf5"
    command = [
        "data",
        "collect",
        SLALOM,
        "--out",
        str(out),
        "--limits",
        "1",
        "5",
        "--steps",
        "2048",
        "--episodes",
        "30",
    ]
    assert main(command) == 0
    logs = data.check(data.read(out))
    assert 10 <= len(logs.episodes.starts) <= 30
    about = data.provenance(out)
    assert about["settings"]["task"] == SLALOM
    assert about["settings"]["limits"] == [1.0, 5.0]
    assert "gymnasium" in about["versions"]
    parts = {path: path.stat().st_mtime_ns for path in Path(f"{out}.parts").rglob("*")}
    assert main(command) == 2
    assert "exists: choose another name" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    assert parts == {path: path.stat().st_mtime_ns for path in Path(f"{out}.parts").rglob("*")}
    for old, new in zip(logs, data.read(out), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((SLALOM,), "--limits are needed"),
        (("BallRun", "--minutes", "0"), "--minutes must be a number of at least 0.01, got 0"),
        (("BallRun", "--limits", "-1"), "--limits must be numbers of at least 0"),
        (("BallRun", "--episodes", "0"), "--episodes must be a number of at least 1, got 0"),
        (("BallRun", "--out", "logs.txt"), "use one of .hdf5"),
    ],
)
def test_mistakes_are_told_before_any_work(arguments, says, capsys, tmp_path):
    out = () if "--out" in arguments else ("--out", str(tmp_path / "logs.npz"))
    assert main(["data", "collect", *arguments, *out]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
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
