import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_datasets import assert_same

from corsdice.algorithms.logs import safe_rows
from corsdice.cli import main
from corsdice.data import Dataset, check, dataset_from, filters, provenance, read, write
from corsdice.data.dsrl import dsrl_task
from corsdice.errors import UserError


def make(costs, returns, steps=3):
    """Episodes of these costs and returns; each observation is the number of its episode."""
    costs, returns = np.asarray(costs, float), np.asarray(returns, float)
    numbers = np.repeat(np.arange(len(costs)), steps)[:, None]
    first, last = (np.tile(np.arange(steps) == i, len(costs)) for i in (0, steps - 1))
    return dataset_from(
        {
            "observations": numbers,
            "next_observations": numbers,
            "actions": np.zeros_like(numbers),
            "rewards": np.where(first, np.repeat(returns, steps), 0),
            "costs": np.where(first, np.repeat(costs, steps), 0),
            "terminals": np.zeros(len(numbers)),
            "timeouts": last,
        }
    )


def points(dataset):
    return dataset.episodes.sums(dataset.costs), dataset.episodes.sums(dataset.rewards)


def numbers(dataset):
    """Which episodes of `make` are in it, all of them whole."""
    assert set(dataset.episodes.lengths) == {3}
    kept = dataset.initial_observations[:, 0].astype(int)
    np.testing.assert_array_equal(dataset.observations[:, 0], np.repeat(kept, 3))
    return kept


def cloud(episodes, spread, seed):
    """Costs and returns in whole numbers, so that some coincide, fewer the more they spread."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, spread, episodes), generator.integers(-spread, spread, episodes)


clouds = st.builds(cloud, st.integers(1, 150), st.integers(1, 40), st.integers(0, 1000))
quick = settings(max_examples=40)


@quick
@given(clouds, st.integers(1, 200), st.integers(0, 3))
def test_thinning_keeps_whole_episodes_in_order_from_every_cell(drawn, episodes, seed):
    costs, returns = drawn
    dataset = make(costs, returns)
    thinned = filters.thin(dataset, episodes, seed=seed)
    kept = numbers(thinned)
    assert 1 <= len(kept) <= episodes
    assert (np.diff(kept) > 0).all()
    assert_same(thinned, filters.thin(dataset, episodes, seed=seed))
    cells = filters.finest_cells(costs, returns, episodes)
    sizes, left = np.bincount(cells), np.bincount(cells[kept])
    assert (left > 0).all()
    most = left.max()
    np.testing.assert_array_equal(left, np.minimum(sizes, most))
    if len(kept) < len(costs):
        assert np.minimum(sizes, most + 1).sum() > episodes
    else:
        assert len(costs) <= episodes


@quick
@given(clouds, st.integers(1, 50), st.integers(0, 40))
def test_thinning_drops_what_costs_too_much(drawn, episodes, max_cost):
    costs, returns = drawn
    assume((costs <= max_cost).any())
    kept = numbers(filters.thin(make(costs, returns), episodes, max_cost))
    cheap = np.flatnonzero(costs <= max_cost)
    assert set(kept) <= set(cheap)
    np.testing.assert_array_equal(cheap[numbers(filters.thin(make(costs[cheap], returns[cheap]), episodes))], kept)


def test_thinning_evens_out_a_crowd():
    """900 episodes in one corner, 100 spread over the plane: chance would draw mostly from the corner."""
    generator = np.random.default_rng(0)
    costs, returns = (np.append(generator.uniform(0, 2, 900), generator.uniform(0, 100, 100)) for _ in range(2))
    kept = numbers(filters.thin(make(costs, returns), 80))
    assert len(kept) > 70
    assert (kept < 900).mean() < 0.1


def test_another_seed_draws_others_and_identical_episodes_are_one_cell():
    dataset = make(np.zeros(100), np.zeros(100))
    first, second = (numbers(filters.thin(dataset, 10, seed=seed)) for seed in (0, 1))
    assert len(first) == len(second) == 10
    assert set(first) != set(second)


def test_density_keeps_five_of_a_crowd_and_nothing_of_a_few():
    sizes = {0: 8, 10: 5, 20: 3, 30: 2, 40: 1}
    costs = np.repeat(list(sizes), list(sizes.values()))
    dataset = make(costs, costs)
    kept = filters.density(dataset)
    assert dict(zip(*np.unique(points(kept)[0], return_counts=True), strict=True)) == {0: 5, 10: 5, 20: 3}
    assert_same(kept, filters.density(dataset))
    assert not np.array_equal(numbers(kept), numbers(filters.density(dataset, seed=2)))
    every = filters.density(dataset, bins=(1, 1), most=100, least=0)
    assert_same(every, dataset)
    assert len(numbers(filters.density(dataset, most=1, least=0))) == 5


def test_outliers_seem_cheap_and_good():
    costs, returns = np.tile([0, 30], 10), np.tile([20, 5, 30, 20], 5)
    dataset = make(costs, returns, steps=50)
    spoilt = filters.outliers(dataset, 0.2, limit=4)
    spoilt_costs, spoilt_returns = points(spoilt)
    changed = np.flatnonzero(spoilt_returns != returns)
    assert len(changed) == 4
    assert set(changed) <= set(np.flatnonzero((costs >= 15) & (returns >= 15)))
    np.testing.assert_allclose(spoilt_returns[changed], 1.5 * returns[changed])
    assert (spoilt_costs[changed] < 4).all()
    assert set(np.unique(spoilt.costs.reshape(20, 50)[changed])) <= {0, 1}
    same = np.setdiff1d(np.arange(20), changed)
    np.testing.assert_array_equal(spoilt_costs[same], costs[same])
    assert_same(dataset, make(costs, returns, steps=50))  # what was given is left alone
    assert_same(spoilt, filters.outliers(dataset, 0.2, limit=4))
    check(spoilt)


@quick
@given(st.floats(0.01, 60), st.integers(0, 20))
def test_no_outlier_reaches_the_limit(limit, seed):
    spoilt = filters.outliers(make([9, 9], [9, 9], steps=5), 1, limit, seed=seed)
    costs, returns = points(spoilt)
    assert (costs < limit).all()
    np.testing.assert_array_equal(returns, 13.5)


def test_every_cost_below_the_limit_is_seen():
    dataset = make([9] * 200, [9] * 200, steps=5)
    assert set(points(filters.outliers(dataset, 1, limit=3))[0]) == {0, 1, 2}
    assert set(points(filters.outliers(dataset, 1, limit=2.5))[0]) == {0, 1, 2}
    assert set(points(filters.outliers(dataset, 1, limit=99))[0]) == {0, 1, 2, 3, 4, 5}


def test_at_least_one_outlier_by_the_ranges_of_a_task():
    dataset = make([40, 80, 100], [500, 400, 700])
    assert len(np.flatnonzero(points(filters.outliers(dataset, 0.01, limit=5))[1] != [500, 400, 700])) == 1
    spoilt = filters.outliers(dataset, 0.01, limit=5, max_cost=160, max_return=1200)
    np.testing.assert_allclose(points(spoilt)[1], [500, 400, 1050])


@quick
@given(clouds, st.integers(0, 40))
def test_safe_agrees_with_what_bc_safe_learns_from(drawn, limit):
    costs, returns = drawn
    dataset = make(costs, returns)
    if (costs <= limit).any():
        kept = filters.safe(dataset, limit)
        np.testing.assert_array_equal(numbers(kept), np.flatnonzero(costs <= limit))
        assert kept.transitions == safe_rows(dataset, limit)
    else:
        with pytest.raises(UserError, match=f"no episode costs {limit} or less, the cheapest {costs.min():g}"):
            filters.safe(dataset, limit)


REFUSED = {
    "at least 1 episode, got 0": lambda d: filters.thin(d, 0),
    "no episode costs 1 or less, the cheapest 2": lambda d: filters.thin(d, 5, max_cost=1),
    "no episode costs nan": lambda d: filters.safe(d, np.nan),
    "no cell of 10 x 50 holds more than 2": filters.density,
    "bins >= 1": lambda d: filters.density(d, bins=(0, 5)),
    "most >= least": lambda d: filters.density(d, most=1, least=2),
    "above 0 and at most 1, got 1.5": lambda d: filters.outliers(d, 1.5, 10),
    "above 0 and at most 1, got nan": lambda d: filters.outliers(d, np.nan, 10),
    "must be above 0 and finite, got 0": lambda d: filters.outliers(d, 0.1, 0),
    "must be above 0 and finite, got inf": lambda d: filters.outliers(d, 0.1, np.inf),
    "3 of 3 episodes should become outliers, but 1 have a cost >= 3": lambda d: filters.outliers(d, 1, 10),
    "but 0 have a cost >= 50": lambda d: filters.outliers(d, 0.1, 10, max_cost=100),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(message):
    with pytest.raises(UserError, match=message) as refusal:
        REFUSED[message](make([2, 4, 6], [1, 2, 8]))
    assert "\n" not in str(refusal.value)


@pytest.fixture
def crowd() -> Dataset:
    generator = np.random.default_rng(1)
    costs = generator.integers(0, 100, 300)
    return make(costs, costs + generator.integers(1, 200, 300))


def test_filters_by_command_in_their_order(crowd, tmp_path, capsys):
    source, target = tmp_path / "logs.npz", tmp_path / "less.hdf5"
    write(crowd, source, {"source": "a test", "steps": ["cleaned"]})
    options = ("--safe", "50", "--outliers", "0.05", "--cost-limit", "3", "--density", "--thin", "250", "--seed", "7")
    assert main(["data", "filter", str(source), str(target), "--max-cost", "90", *options]) == 0
    thinned = filters.thin(crowd, 250, 90, seed=7)
    dense = filters.density(thinned, seed=7)
    spoilt = filters.outliers(dense, 0.05, 3, seed=7)
    kept = filters.safe(spoilt, 50)
    assert_same(read(target), kept)
    shown = capsys.readouterr().out
    words = [line.replace("│", " ").split() for line in shown.splitlines()]
    assert [row[:3] for row in words if row[:1] and row[0] in ("source", "thin", "density", "outliers", "safe")] == [
        [name, str(len(part.episodes.starts)), str(part.transitions)]
        for name, part in (
            ("source", crowd),
            ("thin", thinned),
            ("density", dense),
            ("outliers", spoilt),
            ("safe", kept),
        )
    ]
    assert f"Wrote {kept.transitions:,} transitions" in shown
    about = provenance(target)
    assert about["source"] == "a test"
    assert about["steps"][0] == "cleaned"
    assert [step["filter"] for step in about["steps"][1:]] == ["thin", "density", "outliers", "safe"]
    assert about["steps"][1]["episodes"] == 250
    assert about["steps"][3]["seed"] == 7
    assert about["steps"][4]["remained"] == len(kept.episodes.starts)


def test_a_task_judges_by_its_ranges(crowd, tmp_path, capsys):
    source, target = tmp_path / "logs.csv", tmp_path / "spoilt.parquet"
    write(crowd, source)
    task = dsrl_task("DroneRun")
    arguments = ["data", "filter", str(source), str(target), "--outliers", "0.01", "--cost-limit", "10"]
    assert main([*arguments, "--task", "OfflineDroneRun-v0"]) == 2
    least = f"a cost >= {task.max_cost / 2:g} and a return >= {task.max_return / 2:g}"
    assert least in capsys.readouterr().err
    assert main(arguments) == 0
    assert_same(read(target), filters.outliers(read(source), 0.01, 10))
    assert provenance(target)["source"] == "logs.csv"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--thin, --density, --outliers or --safe: choose at least one"),
        (("--max-cost", "5"), "--max-cost goes with --thin"),
        (("--outliers", "0.1"), "--outliers and --cost-limit go together"),
        (("--safe", "5", "--cost-limit", "3"), "--outliers and --cost-limit go together"),
        (("--density", "--task", "BallRun"), "--task goes with --outliers"),
        (("--safe", "inf"), "--safe must be a number of at least 0, got inf"),
        (("--thin", "3", "--max-cost", "nan"), "--max-cost must be a number of at least 0, got nan"),
        (("--thin", "3", "--seed", "-1"), "--seed must be a number of at least 0, got -1"),
        (("--thin", "0"), "at least 1 episode, got 0"),
        (("--outliers", "2", "--cost-limit", "3"), "at most 1, got 2"),
        (("--outliers", "0.1", "--cost-limit", "3", "--task", "BallRunning"), "unknown task 'BallRunning'"),
        (("--thin", "few"), "--thin"),
    ],
)
def test_a_contradiction_is_one_line_and_nothing_is_written(crowd, tmp_path, capsys, options, says):
    source, target = tmp_path / "logs.npz", tmp_path / "less.npz"
    write(crowd, source)
    assert main(["data", "filter", str(source), str(target), *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("corsdice: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err
    assert not target.exists()


def test_a_target_that_exists_is_kept_unless_said(crowd, tmp_path, capsys):
    path = tmp_path / "logs.npz"
    write(crowd, path)
    assert main(["data", "filter", str(path), str(path), "--thin", "10"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert_same(read(path), crowd)
    assert main(["data", "filter", str(path), str(path), "--thin", "10", "--overwrite"]) == 0
    assert_same(read(path), filters.thin(crowd, 10))
