import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from corsdice import data
from corsdice.cli import main
from corsdice.envs.fleet import Fleet, whole_episodes
from corsdice.envs.ppo import Moments, Settings, act, advantages, include, start
from corsdice.envs.snapshots import collect_snapshots, train

QUICK = Settings(
    steps=20_000, envs=8, rollout=64, epochs=4, minibatches=8, learning_rate=3e-3, log_std=-1.0, widths=(16,)
)
TINY = {"steps": 4096, "transitions": 1500, "snapshots": 3}


class Follow(gymnasium.Env):
    """The best action is half of what is seen, which is drawn anew each step; actions above 0 cost.

    The episode terminates when something above 0.9 is seen.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = self.np_random.uniform(-1, 0.9, 1)
        return self.seen, {}

    def step(self, action):
        assert self.action_space.contains(np.float32(action))
        reward = -float((action[0] - self.seen[0] / 2) ** 2)
        self.seen = self.np_random.uniform(-1, 1, 1)
        return self.seen, reward, bool(self.seen[0] > 0.9), False, {"cost": float(action[0] > 0)}


def follow(limit=5):
    return gymnasium.wrappers.TimeLimit(Follow(), limit)


def slow_advantages(rewards, values, next_values, terminated, ended, discount, decay):
    """The definition: a sum of discounted errors up to the end of the episode or of the batch."""
    out = np.zeros_like(rewards)
    for e in range(rewards.shape[1]):
        for t in range(len(rewards)):
            weight = 1.0
            for k in range(t, len(rewards)):
                beyond = 0.0 if terminated[k, e] else discount * next_values[k, e]
                out[t, e] += weight * (rewards[k, e] + beyond - values[k, e])
                if ended[k, e]:
                    break
                weight *= discount * decay
    return out


def test_advantages_agree_with_their_definition_at_terminations_and_timeouts():
    generator = np.random.default_rng(0)
    rewards, values, next_values = generator.normal(size=(3, 40, 5))
    terminated = generator.random((40, 5)) < 0.1
    ended = terminated | (generator.random((40, 5)) < 0.1)
    assert terminated.any()
    assert (ended & ~terminated).any()
    numbers = rewards, values, next_values, terminated, ended, 0.9, 0.8
    np.testing.assert_allclose(advantages(*map(jnp.asarray, numbers)), slow_advantages(*numbers), rtol=1e-4, atol=1e-5)


def test_running_moments_are_those_of_all_rows():
    rows = np.random.default_rng(0).normal(3, 2, (70, 4)).astype(np.float32)
    moments = Moments(jnp.zeros(()), jnp.zeros(4), jnp.ones(4))
    for part in np.split(rows, [10, 11, 50]):
        moments = include(moments, jnp.asarray(part))
    assert moments.rows == 70
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-5)


def test_a_rollout_keeps_true_successors_and_tells_ends_apart():
    agent = start(jax.random.key(0), 1, 1, QUICK).agent
    batch = jax.device_get(Fleet([follow() for _ in range(8)], 0).rollout(agent, jax.random.key(1), QUICK))
    timed_out = batch.ended & ~batch.terminated
    assert timed_out.any()
    np.testing.assert_array_equal(batch.terminated, batch.next_observations[..., 0] > 0.9)
    followed = (batch.next_observations[:-1] == batch.observations[1:])[..., 0]
    np.testing.assert_array_equal(followed, ~batch.ended[:-1])


def mean_actions(agent, seen):
    rows = np.full((2000, 1), seen, np.float32)
    return float(act(agent, jax.random.key(0), 0, rows, QUICK).mean())


def last_agent(penalty):
    *_, (agent, latest) = train([follow() for _ in range(8)], QUICK, 0, penalty)
    return agent, latest


def test_it_finds_the_known_answer_and_with_a_penalty_the_safe_one():
    free, latest = last_agent(0.0)
    for seen in (-0.8, 0.0, 0.8):
        assert mean_actions(free, seen) == pytest.approx(seen / 2, abs=0.07)
    assert -0.2 < latest < 0
    careful, _ = last_agent(2.0)
    assert mean_actions(careful, -0.8) == pytest.approx(-0.4, abs=0.1)
    assert mean_actions(careful, 0.8) < 0


def test_whole_episodes_and_no_more_than_needed():
    agent = start(jax.random.key(0), 1, 1, QUICK).agent
    env = follow()
    env.reset(seed=0)
    logs = data.check(whole_episodes(env, agent, jax.random.key(0), 200, QUICK), action_bounds=(-1, 1))
    np.testing.assert_array_equal(logs.terminals, logs.next_observations[:, 0] > np.float32(0.9))
    assert logs.terminals.any()
    assert not (logs.terminals & logs.timeouts).any()
    assert logs.episodes.lengths[logs.timeouts[logs.episodes.stops - 1]].tolist() == [5] * logs.timeouts.sum()
    assert logs.episodes.starts[-1] < 200 <= logs.transitions == logs.episodes.stops[-1]


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    path = tmp_path_factory.mktemp("collected") / "hopper.hdf5"
    options = [text for name, value in TINY.items() for text in (f"--{name}", str(value))]
    assert main(["data", "snapshots", "hopper", "--out", str(path), *options]) == 0
    return path


def test_snapshots_by_command_writes_logs_that_pass_the_checks(collected, capsys):
    logs = data.check(data.read(collected), action_bounds=(-1, 1))
    assert logs.observations.shape[1:] == (11,)
    assert 1500 <= logs.transitions < 1700
    assert logs.terminals[logs.episodes.stops - 1].all()  # it falls long before the time limit
    assert set(np.unique(logs.costs)) == {0, 1}
    assert main(["data", "snapshots", "hopper", "--out", str(collected)]) == 2
    assert "choose another name, or --overwrite" in capsys.readouterr().err


def test_the_seed_decides_everything(collected):
    told = []
    again = collect_snapshots("hopper", **TINY, progress=lambda latest, steps: told.append(steps))
    for name, array in data.read(collected)._asdict().items():
        np.testing.assert_array_equal(array, getattr(again, name), err_msg=name)
    assert sum(told) == TINY["steps"] + again.transitions
    other = collect_snapshots("hopper", **TINY, seed=1)
    assert (other.actions[:100] != again.actions[:100]).any()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ant",), "choose one of hopper, walker2d, halfcheetah"),
        (("hopper", "--snapshots", "0"), "--snapshots must be a number of at least 1, got 0"),
        (("hopper", "--snapshots", "9", "--steps", "4096"), "too few for 9 snapshots: train for 16384"),
        (("hopper", "--penalty", "nan"), "--penalty must be a number of at least 0, got nan"),
        (("hopper", "--out", "logs.txt"), "use one of .hdf5"),
        (("hopper", "--out", "nowhere/logs.npz"), "no directory nowhere"),
    ],
)
def test_mistakes_are_told_before_any_training(arguments, says, capsys, tmp_path):
    out = () if "--out" in arguments else ("--out", str(tmp_path / "logs.npz"))
    assert main(["data", "snapshots", *arguments, *out]) == 2
    assert says in capsys.readouterr().err
