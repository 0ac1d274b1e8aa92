"""DSRL's protocol: its numbers, its choices, its tables, and a small run on an embedded task that goes on."""

import csv
import io
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import trim_mean

from coarse import coarsen
from corsdice.cli import main
from corsdice.data.dsrl import DSRL_TASKS, normalised_cost
from corsdice.errors import UserError
from corsdice.experiments import bench_dsrl, dsrl_cells
from corsdice.experiments.bench_dsrl import COLUMNS, failures, strata, summarise
from corsdice.experiments.bench_dsrl_config import BenchDsrlConfig, DsrlAdvancedConfig
from corsdice.experiments.dsrl_cells import CHOICE, NUMBERS, Cell, cells_of, normalised_return, records
from corsdice.experiments.published import published_scores
from corsdice.experiments.selection import offline_choice, oracle_choice, selected
from corsdice.experiments.statistics import interquartile_interval, interquartile_mean
from corsdice.policy_family import load_family
from corsdice.report import benchmark, terminal
from corsdice.report.benchmark import Score
from corsdice.training.population import Member

HOSTILE = "<script>throw 1</script>"


def policy(alpha=0.3, *, failure=None, **known):
    """A record with the numbers that a test has something to say about."""
    numbers = {
        "return": 0.0,
        "cost": 0.0,
        "estimated_return": 0.0,
        "estimated_cost_high": 0.0,
        "verdict": "cannot be told",
    }
    score = {"normalised_return": known.get("return", 0.0), "normalised_cost": known.get("cost", 0.0) / 10}
    place = {"task": "BallRun", "algorithm": "corsdice", "cost_limit": 10.0, "seed": 0, "alpha": alpha}
    found = dict.fromkeys(NUMBERS) | ({} if failure else numbers | score)
    return place | {"failure": failure} | found | known


# The statistics.


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11, 30])
def test_the_interquartile_mean_is_scipys_trimmed_mean(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(interquartile_mean(values), trim_mean(values, 0.25, axis=-1))


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, -100.0, 5.0, 6.0])) == (2 + 3 + 4 + 5) / 4


def test_seeds_are_drawn_again_within_their_task_alone():
    assert interquartile_interval([np.zeros(3), np.ones(3)]) == (0.5, 0.5, 0.5)  # across tasks it would spread


def test_the_interval_by_hand():
    # Two seeds: the mean of a draw is 0, 0.5 or 1, with chances 1/4, 1/2 and 1/4.
    assert interquartile_interval([np.array([0.0, 1.0])]) == (0.5, 0.0, 1.0)


def test_an_interval_covers_about_what_it_says():
    generator = np.random.default_rng(0)
    found = [interquartile_interval(list(generator.normal(size=(10, 20)))) for _ in range(100)]
    assert 0.88 <= np.mean([low <= 0 <= high for _, low, high in found]) <= 0.99


def test_the_limits_of_a_seed_are_one_value_and_failures_are_none():
    results = [policy(seed=seed, **{"return": value}) for seed, value in ((0, 1.0), (0, 3.0), (1, 4.0))]
    (found,) = strata(results, "normalised_return")
    assert found.tolist() == [2.0, 4.0]
    summary = summarise(list(selected([*results, policy(failure="stopped", seed=2)])))
    assert [line["selection"] for line in summary] == ["oracle", "offline", "last"]
    assert summary[-1]["normalised_return"]["value"] == 3.0
    assert summary[-1]["safe_share"] == 1.0


# The choices.


def test_the_offline_choice_is_the_best_of_those_that_meet_the_limit():
    timid = policy(verdict="meets", estimated_return=1.0, estimated_cost_high=1.0)
    good = policy(verdict="meets", estimated_return=2.0, estimated_cost_high=9.0)
    bold = policy(verdict="cannot be told", estimated_return=3.0, estimated_cost_high=11.0)
    assert offline_choice([timid, good, bold]) is good


def test_the_offline_choice_is_else_the_one_that_may_cost_least():
    unclear = policy(verdict="cannot be told", estimated_return=1.0, estimated_cost_high=12.0)
    bold = policy(verdict="does not meet", estimated_return=3.0, estimated_cost_high=20.0)
    broken = policy(verdict="cannot be told", estimated_return=9.0, estimated_cost_high=math.nan)
    for order in ([broken, unclear, bold], [bold, unclear, broken]):
        assert offline_choice(order) is unclear


def test_the_offline_choice_knows_nothing_of_the_truth():
    safe_in_truth = policy(verdict="does not meet", estimated_cost_high=20.0, cost=1.0, **{"return": 9.0})
    told_safe = policy(verdict="meets", estimated_cost_high=9.0, cost=99.0)
    assert offline_choice([safe_in_truth, told_safe]) is told_safe
    assert oracle_choice([safe_in_truth, told_safe]) is safe_in_truth


def test_the_oracle_is_the_best_of_the_safe_or_the_least_unsafe():
    timid, good, bold, worst = (policy(cost=c, **{"return": r}) for c, r in ((1, 1), (10, 2), (11, 3), (30, 4)))
    assert oracle_choice([timid, good, bold, worst]) is good
    assert oracle_choice([worst, bold]) is bold


def test_every_policy_is_a_line_and_each_choice_one_for_each_limit_and_seed():
    policies = [
        policy(alpha, cost_limit=limit, seed=seed) for limit in (10.0, 20.0) for alpha in (0.1, 0.3) for seed in (0, 1)
    ]
    lines = [(line["cost_limit"], line["seed"], line["selection"]) for line in selected(policies)]
    per_seed = ["last", "last", "offline", "oracle"]
    assert lines == [(limit, seed, name) for limit in (10.0, 20.0) for seed in (0, 1) for name in per_seed]


def test_what_failed_is_shown_but_chosen_only_where_all_did():
    failed, trained = policy(0.1, failure="stopped at step 3"), policy(0.3, cost=99.0)
    chosen = {line["selection"]: line for line in selected([failed, trained]) if line["selection"] != "last"}
    assert {line["alpha"] for line in chosen.values()} == {0.3}
    lines = list(selected([failed]))
    assert [(line["selection"], line["cost"]) for line in lines] == [
        ("last", None),
        ("offline", None),
        ("oracle", None),
    ]
    (told,) = failures([failed, trained])
    assert told == "No numbers for BallRun corsdice, limit 10, seed 0, α 0.1: stopped at step 3."


@pytest.mark.parametrize(
    ("algorithm", "limits", "alphas"), [("corsdice", (5.0, 7.0), (None,)), ("coptidice", (5.0,), (0.1, 0.3))]
)
def test_members_that_failed_are_recorded_with_the_reason_and_without_numbers(algorithm, limits, alphas):
    config = BenchDsrlConfig(tasks=("point-run",), limits=(5.0, 7.0), alphas=(0.1, 0.3), seeds=2)
    cell = Cell(config, Path(), "point-run", algorithm, limits, (0, config.members_of(algorithm)))
    members = [Member(seed, alpha) for alpha in (0.1, 0.3) for seed in (0, 1)]
    failures = dict.fromkeys(range(4), "q_loss not finite")
    found = records(cell, SimpleNamespace(failures=failures, plan=SimpleNamespace(members=members)), dataset=None)
    assert [(each["cost_limit"], each["alpha"], each["seed"]) for each in found] == [
        (limit, alpha, seed) for limit in limits for alpha in alphas for seed in (0, 1)
    ]
    assert {each["failure"] for each in found} == {"q_loss not finite"}
    assert all(each[name] is None for each in found for name in NUMBERS)


# Normalisation and what was published.


@pytest.mark.parametrize("name", ["BallRun", "CarGoal1", "harddense"])
def test_returns_and_costs_are_normalised_by_dsrls_formulae(name):
    task = DSRL_TASKS[name]
    for value in (-3.0, 0.0, 250.0):
        expected = (value - task.min_return) / (task.max_return - task.min_return)
        assert normalised_return(name, value, {"lowest_return": 0, "highest_return": 1}) == pytest.approx(expected)
    for limit in (*task.cost_limits, 0.0):
        epsilon = 1 if limit == 0 else 0
        assert normalised_cost(15.0, limit) == pytest.approx((15.0 + epsilon) / (limit + epsilon))


def test_a_task_that_dsrl_lacks_is_normalised_by_its_logs():
    assert normalised_return("point-run", 30.0, {"lowest_return": 10.0, "highest_return": 50.0}) == 0.5


def test_limits_are_those_of_the_task_unless_said():
    config = BenchDsrlConfig(tasks=("OfflineBallRun-v0", "CarGoal1", "HopperVelocity", "point-run"))
    assert config.names() == ("BallRun", "CarGoal1", "HopperVelocity", "point-run")
    assert [config.limits_of(task) for task in config.names()] == [
        (10, 20, 40),
        (20, 40, 80),
        (20, 40, 80),
        (10, 20, 40),
    ]
    tight = BenchDsrlConfig(tight=True)
    assert len(tight.names()) == 38
    assert [tight.limits_of(task) for task in config.names()] == [(5,), (10,), (5,), (5,)]


def test_published_numbers_have_our_names_and_averages_only_of_whole_suites():
    bullet = [task.task for task in DSRL_TASKS.values() if task.suite == "bullet"]
    found = published_scores([*bullet, "HopperVelocity"])
    assert found["CarRun", "bc-all"] == Score(0.97, 0.15)
    assert found["bullet average", "corsdice"] == Score(0.54, 0.77)
    assert ("HopperVelocity", "corsdice") in found
    assert not any(name == "safety-gymnasium average" for name, _ in found)
    assert {name for name, _ in published_scores(DSRL_TASKS)} >= set(DSRL_TASKS)


def test_table_three_has_its_26_tasks_at_their_tight_limits_and_what_was_published():
    config = DsrlAdvancedConfig()
    assert len(config.names()) == 26
    assert {task: config.limits_of(task) for task in ("CarPush2", "AntVelocity", "DroneRun", "hardmean")} == {
        "CarPush2": (10,),
        "AntVelocity": (5,),
        "DroneRun": (5,),
        "hardmean": (5,),
    }
    published = published_scores(config.names(), tight=True)
    for algorithm in config.algorithms:
        assert {name for name, method in published if method == algorithm} == {
            *config.names(),
            *(f"{suite} average" for suite in ("safety-gymnasium", "bullet", "metadrive")),
        }
    assert published["CarButton1", "d-bc-all"] == Score(0.15, 14.5)
    assert ("bullet average", "fisor") not in published_scores(["BallRun"], tight=True)


# The tables.


def lines_of(task, algorithm, *scores, limit=10.0):
    return [
        policy(task=task, algorithm=algorithm, cost_limit=limit, seed=seed, selection="oracle")
        | {"normalised_return": score and score[0], "normalised_cost": score and score[1]}
        for seed, score in enumerate(scores)
    ]


def in_every_selection(results):
    return [line | {"selection": name} for name in benchmark.SELECTIONS for line in results]


def oracle_table(results, suites, published=None):
    return benchmark.mean_tables(in_every_selection(results), suites, published or {})[0]


def test_unsafe_is_grey_safe_bold_and_the_best_safe_blue():
    scores = [Score(0.9, 1.01), Score(0.5, 1.0), Score(0.502, 0.2), Score(0.4, 0.0), None]
    cells = benchmark.ranked(scores)
    assert [cell.look for cell in cells] == ["unsafe", "best", "best", "safe", "missing"]
    assert [benchmark.RICH[cell.look] for cell in cells] == ["bright_black", "bold blue", "bold blue", "bold", ""]
    assert [cell.look for cell in benchmark.ranked([Score(0.9, 2.0)])] == ["unsafe"]


def test_rows_are_means_over_limits_and_seeds_with_averages_of_suites_and_of_all():
    results = [
        *lines_of("BallRun", "corsdice", (0.2, 0.5), (0.4, 0.7)),
        *lines_of("BallRun", "corsdice", (0.6, 0.9), (0.8, 1.1), limit=20.0),
        *lines_of("CarRun", "corsdice", (0.1, 2.0)),
        *lines_of("point-run", "corsdice", (0.9, 0.2)),
    ]
    table = oracle_table(results, {"BallRun": "bullet", "CarRun": "bullet", "point-run": "embedded"})
    found = {row.name: row.cells[0].score for row in table.rows}
    assert list(found) == [
        "BallRun",
        "CarRun",
        "bullet average",
        "point-run",
        "embedded average",
        "average of all tasks",
    ]
    assert found["BallRun"] == pytest.approx((0.5, 0.8))
    assert found["bullet average"] == pytest.approx((0.3, 1.4))
    assert found["average of all tasks"] == pytest.approx((0.5, 1.0))
    by_limit = benchmark.limit_tables(in_every_selection(results))[0]
    assert [row.title for row in by_limit.rows][:2] == ["BallRun, limit 10", "BallRun, limit 20"]
    assert by_limit.rows[1].cells[0].score == pytest.approx((0.7, 1.0))


def test_what_failed_is_in_no_mean_and_a_task_without_numbers_has_no_average():
    results = [*lines_of("BallRun", "corsdice", (0.2, 0.5), None), *lines_of("CarRun", "corsdice", None)]
    table = oracle_table(results, dict.fromkeys(("BallRun", "CarRun"), "bullet"))
    assert [row.cells[0].score for row in table.rows] == [(0.2, 0.5), None, None]
    assert table.rows[1].cells[0].numbers == ("–", "–")


def test_published_numbers_stand_beside_the_oracles_and_in_no_average():
    results = [*lines_of("BallRun", "corsdice", (0.2, 0.5)), *lines_of("BallRun", "semidice", (0.3, 0.5))]
    published = {("BallRun", "corsdice"): Score(0.9, 0.1)}
    suites = {"BallRun": "bullet"}
    table = oracle_table(results, suites, published)
    assert table.columns == ("corsdice", "corsdice published, on DSRL's data", "semidice")
    assert [cell.look for cell in table.rows[0].cells] == ["safe", "published", "best"]
    assert [cell.score for cell in table.rows[1].cells] == [(0.2, 0.5), None, (0.3, 0.5)]
    others = benchmark.mean_tables(in_every_selection(results), suites, published)[1:]
    assert {other.columns for other in others} == {("corsdice", "semidice")}


def small_table(task):
    algorithms = [("corsdice", (0.5, 0.5)), ("bc-safe", (0.4, 0.2)), ("bc-all", (0.9, 3.0))]
    results = [line for name, score in algorithms for line in lines_of(task, name, score)]
    return oracle_table(results, {task: "bullet"}, {(task, "corsdice"): Score(0.6, 0.6)})


def test_the_terminal_shows_grey_bold_and_blue(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=200, legacy_windows=False)
    monkeypatch.setattr(terminal, "Console", lambda: screen)
    benchmark.print_table(small_table("BallRun"))
    shown = screen.file.getvalue()
    assert "\x1b[1;34m0.50 0.50\x1b[0m" in shown
    assert "\x1b[1m0.40 0.20\x1b[0m" in shown
    assert "\x1b[90m0.90 3.00\x1b[0m" in shown
    assert re.search(r"\x1b\[3m *0\.60 0\.60\x1b", shown)


def test_csv_tells_every_cell_and_its_look():
    rows = [dict(zip(benchmark.CSV_COLUMNS, row, strict=True)) for row in benchmark.csv_rows([small_table("BallRun")])]
    assert [row["look"] for row in rows][:4] == ["best", "published", "safe", "unsafe"]
    assert rows[0] | {"cost_limit": "mean"} == {
        "selection": "oracle",
        "row": "BallRun",
        "cost_limit": "mean",
        "column": "corsdice",
        "normalised_return": 0.5,
        "normalised_cost": 0.5,
        "look": "best",
    }


def test_latex_is_well_formed_and_escaped():
    hostile = r"50%_of {$x^2} & ~#\input{/etc/passwd}"
    source = benchmark.latex([small_table(hostile)])
    assert source.count(r"\begin{table}") == source.count(r"\end{table}") == 1
    assert r"\textbf{\textcolor[HTML]{0000FF}{0.50}}" in source
    assert r"\textbf{0.40}" in source
    assert r"\textcolor[HTML]{656565}{3.00}" in source
    escaped = r"50\%\_of \{\$x\textasciicircum{}2\} \& \textasciitilde{}\#\textbackslash{}input\{/etc/passwd\}"
    assert escaped in source
    plain = re.sub(r"\\[&%$#_{}\\]", "", source)
    assert plain.count("{") == plain.count("}")
    body = [line for line in plain.splitlines() if " & " in line and "multicolumn" not in line]
    assert {line.count(" & ") for line in body} == {2 * 4}  # the columns that the table has


def test_html_escapes_and_fetches_nothing():
    table = small_table(HOSTILE)
    summary = summarise(lines_of(HOSTILE, HOSTILE, (0.5, 0.5)))
    page = benchmark.html(HOSTILE, summary, [table], [table], [HOSTILE])
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert not re.search(r"""(src|href)=|url\(|@import""", page)
    for look, number in (("best", "0.50"), ("safe", "0.40"), ("unsafe", "3.00"), ("published", "0.60")):
        assert f'<td class="{look}">{number}</td>' in page


# The cells.


def test_a_family_has_one_cell_for_all_limits_and_one_run_for_any():
    def cells(*limits):
        config = BenchDsrlConfig(tasks=("point-run",), algorithms=("corsdice", "bc-all"), limits=limits)
        return cells_of(config, Path("out"))

    family, first, second = cells(10.0, 20.0)
    assert [cell.limits for cell in (family, first, second)] == [(10.0, 20.0), (10.0,), (20.0,)]
    assert [cell.results.name for cell in (family, first, second)] == [
        "limit-10-20.json",
        "limit-10.json",
        "limit-20.json",
    ]
    other, *clones = cells(10.0, 30.0)
    assert other.run == family.run
    assert other.results != family.results
    assert [cell.run == first.run for cell in clones] == [True, False]


# The command.

COMMAND = (
    *("bench", "dsrl", "--tasks", "point-run", "--algorithms", "corsdice", "bc-safe", "--limits", "30", "60"),
    *("--alphas", "0.3", "1", "--seeds", "2", "--steps", "10", "--widths", "8", "--batch-size", "16"),
    *("--episodes", "5", "--logged-episodes", "40"),
)


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module", autouse=True)
def fitted():
    """The logs that models of one step are fitted to."""
    with pytest.MonkeyPatch.context() as patch:
        yield coarsen(patch)


@pytest.fixture(scope="module")
def out(fitted, tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    assert main([*COMMAND, "--out", str(out)]) == 0
    assert len(fitted) == 1  # by the first algorithm, for all
    return out


def test_results_have_every_policy_and_every_choice(out):
    rows = read(out / "results.csv")
    assert tuple(rows[0]) == COLUMNS
    counts = {name: sum(row["selection"] == name for row in rows) for name in benchmark.SELECTIONS}
    assert counts == dict.fromkeys(benchmark.SELECTIONS, 2 * 2 + 2 * 2)
    assert {row["alpha"] for row in rows if row["algorithm"] == "corsdice"} <= {"0.3", "1.0"}
    assert {row["alpha"] for row in rows if row["algorithm"] == "bc-safe"} == {""}
    assert {row["cost_limit"] for row in rows} == {"30.0", "60.0"}
    for row in rows:
        assert float(row["normalised_cost"]) == pytest.approx(float(row["cost"]) / float(row["cost_limit"]))
        assert math.isfinite(float(row["estimated_cost"]))
    summary = json.loads((out / "summary.json").read_text())
    assert [line["algorithm"] for line in summary["interquartile_means"]] == ["corsdice", "bc-safe"] * 3
    assert summary["failures"] == []
    page = (out / "table.html").read_text()
    assert "DSRL has no point-run: it is 0 at the least and 1 at the largest return in the logs." in page
    assert (out / "table.tex").read_text().count(r"\toprule") == 6
    assert len(read(out / "table.csv")) == 3 * 2 * (2 + 2)


def test_each_limit_has_chosen_from_the_frontier_of_each_seed(out):
    """The whole chain by hand: the frontier on disk, the choice, and what was recorded of it."""
    frontier = load_family(out / "runs" / "point-run" / "corsdice" / "any-limit" / "family").frontier
    assert {each.member for each in frontier.points} == {0, 1, 2, 3}
    cell = json.loads((out / "cells" / "point-run" / "corsdice" / "limit-30-60.json").read_text())
    assert [(each["cost_limit"], each["seed"]) for each in cell["found"]] == [
        (limit, seed) for limit in (30.0, 60.0) for seed in (0, 1)
    ]
    for each in cell["found"]:
        chosen = frontier.nearest(each["cost_limit"], [each["seed"], 2 + each["seed"]])
        assert tuple(each[name] for name in CHOICE) == chosen.point
        assert each["alpha"] == (0.3, 1.0)[chosen.member // 2]
    (clone, *_) = json.loads((out / "cells" / "point-run" / "bc-safe" / "limit-60.json").read_text())["found"]
    assert {clone[name] for name in CHOICE} == {None}


def test_what_is_done_is_not_done_again_and_a_lost_cell_is_redone_alike(out, capsys):
    rows = read(out / "results.csv")
    folders = [out / kind / "point-run" for kind in ("cells", "runs")]
    cells = [folders[0] / "corsdice" / "limit-30-60.json", folders[0] / "bc-safe" / "limit-60.json"]
    kept = [folders[1] / "corsdice" / "any-limit", folders[1] / "bc-safe" / "limit-60"]
    kept = [*(run / "checkpoint.safetensors" for run in kept), kept[0] / "family.json", cells[1]]
    written = [path.stat().st_mtime_ns for path in (*cells, *kept)]
    assert main([*COMMAND, "--out", str(out)]) == 0
    assert [path.stat().st_mtime_ns for path in (*cells, *kept)] == written
    before = cells[0].read_text()
    cells[0].unlink()
    assert main([*COMMAND, "--out", str(out)]) == 0
    assert cells[0].read_text() == before
    assert [path.stat().st_mtime_ns for path in kept] == written[2:]  # nor is the frontier traced again
    assert read(out / "results.csv") == rows
    assert "as in the paper (oracle)" in " ".join(capsys.readouterr().out.split())


def test_cells_of_single_policies_find_the_same(out, tmp_path):
    """The family's two seeds, each in a cell of its own with both limits."""
    short = [word for word in COMMAND if word != "bc-safe"]
    assert main([*short, "--out", str(tmp_path), "--cell-members", "1"]) == 0
    names = [f"members-{member}-{member + 1}" for member in (0, 1)]
    cells, runs = (tmp_path / kind / "point-run" / "corsdice" for kind in ("cells", "runs"))
    assert {path.name for path in cells.iterdir()} == {f"limit-30-60-{name}.json" for name in names}
    assert {path.name for path in runs.iterdir()} == {f"any-limit-{name}" for name in names}
    parts, whole = (
        sorted(
            (row for row in read(folder / "results.csv") if row["algorithm"] == "corsdice"),
            key=lambda row: (row["selection"], row["cost_limit"], row["seed"]),
        )
        for folder in (tmp_path, out)
    )
    numbers = [name for name in COLUMNS if name not in ("algorithm", "task", "selection", "way", "imitation")]
    assert [row["way"] for row in parts] == [row["way"] for row in whole]
    np.testing.assert_allclose(
        *([[float(row[name]) for name in numbers] for row in rows] for rows in (parts, whole)),
        rtol=1e-3,  # side by side, sums are rounded otherwise
        atol=1e-6,
    )


@pytest.mark.parametrize(
    ("most", "parts"),
    [(None, [(0, 6)]), (6, [(0, 6)]), (9, [(0, 6)]), (4, [(0, 4), (4, 6)]), (1, [(i, i + 1) for i in range(6)])],
)
def test_every_member_is_in_one_cell(most, parts):
    config = BenchDsrlConfig(tasks=("point-run",), alphas=(0.3, 1.0), seeds=3, cell_members=most)
    assert config.parts_of("coptidice") == parts
    assert config.parts_of("corsdice")[-1][-1] == 3  # a seed with both its α is one


def test_what_was_trained_otherwise_is_refused(out, capsys):
    assert main([*COMMAND, "--out", str(out), "--steps", "30"]) == 2
    assert "was started with another steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tasks", "BallRun2"), "unknown task 'BallRun2': choose point-circle"),
        (("--tasks", "BallRun", "SafetyBallRun-v0"), "--tasks names something twice"),
        (("--tight", "--limits", "5"), "exclude each other"),
        (("--published", "--limits", "5"), "leave out --limits"),
        (("--limits", "-1"), "--limits must be at least 0"),
        (("--episodes", "1"), "--episodes must be at least 2"),
        (("--cell-members", "0"), "--cell-members must be at least 1"),
        (("--tasks", "BallRun", "--data", "CarRun=logs.hdf5"), "one of --tasks"),
        (("--algorithms", "fisor"), "'corsdice-paper', 'semidice'"),
        (("--tasks", "BallRun", "--data", "BallRun=nowhere.hdf5"), "no file nowhere.hdf5: check --data"),
        (("--tasks", "BallRun"), "fetch it with `corsdice data download BallRun`"),
    ],
)
def test_a_mistake_is_told_in_a_line_before_anything_is_trained(options, says, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path / "none"))
    assert main(["bench", "dsrl", "--out", str(tmp_path), *options]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_simulator_is_told_before_anything_is_trained(tmp_path, capsys, monkeypatch):
    def make(name):
        raise UserError("bullet_safety_gym is not installed: `make sim` installs the simulators")

    monkeypatch.setattr(dsrl_cells.envs, "make", make)
    logs = tmp_path / "logs.hdf5"
    logs.touch()
    assert main(["bench", "dsrl", "--tasks", "BallRun", "--data", f"BallRun={logs}", "--out", str(tmp_path)]) == 2
    assert "`make sim` installs the simulators" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["logs.hdf5"]


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    def interrupted(config, cells):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_dsrl, "complete_cells", interrupted)
    assert main([*COMMAND, "--out", str(tmp_path)]) == 2
    assert "run the same command again to go on" in capsys.readouterr().err
