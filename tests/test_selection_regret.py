"""The choice from a frontier by logs alone, beside the simulator's: its candidates, and what it is worth."""

import csv
import json

import pytest

from coarse import coarsen
from corsdice.cli import main
from corsdice.conditions import Point
from corsdice.experiments import selection_regret
from corsdice.experiments.selection_regret import COLUMNS, candidates_of, row, summarise
from corsdice.ope.estimate import Interval, Risk
from corsdice.ope.frontier import Frontier, FrontierPoint


def point(returned, cost, half=0.0, multiplier=1.0):
    cost = Interval(cost, cost - half, cost + half)
    return FrontierPoint(
        0, Point("draws", multiplier), Interval(returned, returned, returned), cost, 0.0, Risk(cost, cost)
    )


def test_the_choice_comes_first_then_efficient_policies_evenly_along_the_frontier():
    along = [point(10.0 * i, 5.0 * i) for i in range(9)]
    beaten = point(5.0, 30.0)
    frontier = Frontier((beaten, *along))
    found = candidates_of(frontier, 17.0, 3)
    assert found == [along[3], along[0], along[4], along[8]]
    assert candidates_of(frontier, 20.0, 3) == [along[4], along[0], along[8]]
    assert len(candidates_of(frontier, 20.0, 100)) == len(along)
    assert beaten not in candidates_of(frontier, 20.0, 100)


def test_the_choice_need_not_be_efficient():
    sure, better = point(10.0, 15.0), point(12.0, 14.0, half=9.0)
    assert candidates_of(Frontier((sure, better)), 20.0, 5) == [sure, better]


def candidate(returned, cost):
    known = {"alpha": 0.3, "seed": 0, "way": "draws", "multiplier": 1.0, "imitation": None, "cost_limit": 20.0}
    estimated = {"estimated_return": 0.0, "estimated_cost": 0.0, "estimated_cost_high": 0.0}
    return known | estimated | {"return": returned, "cost": cost, "normalised_cost": cost / 20}


def test_a_row_has_the_first_candidate_beside_the_best_safe_one():
    found = row("t", 0, "meets", [candidate(40.0, 3.0), candidate(90.0, 20.1), candidate(50.0, 20.0)])
    assert (found["chosen_return"], found["oracle_return"], found["candidates"]) == (40.0, 50.0, 3)
    assert (found["regret"], found["regret_percent"], found["safe"]) == (10.0, 20.0, True)
    assert set(found) == set(COLUMNS)


def test_a_choice_is_blamed_only_where_a_candidate_was_safe():
    def row(safe, possible, percent, verdict="meets"):
        return {"safe": safe, "safe_possible": possible, "regret_percent": percent, "verdict": verdict}

    found = summarise("t", [row(True, True, 4.0), row(False, True, -2.0), row(False, False, None, "cannot be told")])
    assert (found["repetitions"], found["safe_possible"], found["unsafe"]) == (3, 2, 1)
    assert (found["known_safe"], found["known_safe_but_unsafe"]) == (2, 1)
    assert (found["regret_percent"], found["regret_percent_of_safe"]) == (1.0, 4.0)


def test_the_experiment_writes_a_row_a_repetition_and_goes_on(capsys, tmp_path, monkeypatch):
    coarsen(monkeypatch)
    monkeypatch.setattr(selection_regret.jax, "clear_caches", lambda: None)  # two repetitions need no room
    command = ["reproduce", "selection", "--out", str(tmp_path), "--tasks", "point-run", "--seeds", "2"]
    command += ["--steps", "10", "--widths", "8", "--batch-size", "16", "--episodes", "20", "--truth-episodes", "10"]
    command += ["--candidates", "4"]
    assert main([*command, "--repetitions", "1"]) == 0
    first = tmp_path / "cells" / "point-run" / "0.json"
    written = first.stat().st_mtime_ns
    assert main([*command, "--repetitions", "2"]) == 0
    assert first.stat().st_mtime_ns == written
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [(line["task"], line["repetition"]) for line in rows] == [("point-run", "0"), ("point-run", "1")]
    for repetition, line in enumerate(rows):
        folder = tmp_path / "runs" / "point-run" / str(repetition)
        frontier = Frontier.from_json(json.loads((folder / "family.json").read_text())["frontier"])
        chosen = frontier.nearest(20.0)
        assert (line["chosen_way"], int(line["chosen_seed"])) == (chosen.point.way, chosen.member)
        assert float(line["chosen_estimated_cost"]) == pytest.approx(chosen.cost.value)
        assert int(line["candidates"]) == len(candidates_of(frontier, 20.0, 4))
        assert line["safe"] == str(float(line["chosen_cost"]) <= 20)
    (summary,) = json.loads((tmp_path / "summary.json").read_text())
    assert summary["repetitions"] == 2
    assert "beside the oracle's" in capsys.readouterr().out
    assert main([*command, "--repetitions", "1", "--limit", "30"]) == 0
    with (tmp_path / "results.csv").open() as file:
        assert [line["cost_limit"] for line in csv.DictReader(file)] == ["30.0"]
