"""The commands that compare estimates with simulation, on small settings: what they write, and that they go on."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from coarse import coarsen
from corsdice.cli import main
from corsdice.conditions import Point
from corsdice.experiments import calibration
from corsdice.experiments.ope import COLUMNS, PUBLISHED, summarise
from corsdice.ope.estimate import Interval, Risk
from corsdice.ope.frontier import Frontier, FrontierPoint

SMALL = ["--steps", "20", "--widths", "8", "--batch-size", "16", "--episodes", "24", "--truth-episodes", "10"]
ESTIMATORS = ("fqe", "naive")


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_ope_table_has_every_estimator_of_every_policy_and_is_not_done_twice(tmp_path, capsys):
    out = tmp_path / "ope"
    command = ["reproduce", "ope", "--out", str(out), "--tasks", "point-ridge", "--alphas", "2", "5", "--seeds", "1"]
    command += [*SMALL, "--estimator-steps", "5", "--estimator-widths", "8", "--estimators", *ESTIMATORS]
    assert main(command) == 0
    rows = read(out / "results.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [(float(row["alpha"]), row["estimator"], row["quantity"]) for row in rows] == [
        (alpha, name, quantity) for alpha in (2, 5) for name in ESTIMATORS for quantity in ("return", "cost")
    ]
    for row in rows:
        assert float(row["low"]) <= float(row["high"])
        assert float(row["truth_se"]) >= 0
    assert (out / "calibration.png").stat().st_size > 10_000
    cells = sorted((out / "cells" / "point-ridge").rglob("fqe.json"))
    written = [cell.stat().st_mtime_ns for cell in cells]
    cells[1].unlink()
    assert main(command) == 0
    assert cells[0].stat().st_mtime_ns == written[0]
    assert read(out / "results.csv") == rows
    assert main([*command, "--estimator-steps", "6"]) == 0
    changed = read(out / "results.csv")
    assert [row["truth"] for row in changed] == [row["truth"] for row in rows]
    for old, new in zip(rows, changed, strict=True):
        assert (old["estimate"] == new["estimate"]) == (old["estimator"] == "naive")
    assert "RMSE of the discounted cost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--data", "hopper"), "task=file"),
        (("--tasks", "point-run", "--data", "hopper=logs.hdf5"), "one of --tasks"),
        (("--alphas", "0"), "--alphas must be positive"),
        (("--truth-episodes", "1"), "--truth-episodes must be at least 2"),
    ],
)
def test_ope_table_says_what_is_wrong_before_it_starts(options, says, tmp_path, capsys):
    assert main(["reproduce", "ope", "--out", str(tmp_path), *options]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def row(estimate, truth, **others):
    return {
        "task": "hopper",
        "quantity": "return",
        "estimator": "ihope",
        "estimate": estimate,
        "low": estimate - 1,
        "high": estimate + 1,
        "truth": truth,
        "truth_se": 0.0,
    } | others


def test_errors_are_root_mean_squares_beside_the_published_ones():
    (summary,) = summarise([row(3.0, 0.0), row(-4.0, 0.0), row(0.5, 0.0), row(-0.5, 0.0)])
    assert summary["rmse"] == pytest.approx((25.5 / 4) ** 0.5)
    assert (summary["bias"], summary["coverage"]) == (-0.25, 0.5)
    assert summary["published_rmse"] == PUBLISHED["ihope"]["hopper"] == 78.61


def test_published_errors_are_of_the_return_alone():
    assert summarise([row(1.0, 0.0, quantity="cost")])[0]["published_rmse"] is None


def test_calibration_writes_estimates_and_truths_of_every_kind_of_logs(tmp_path, capsys, monkeypatch):
    coarsen(monkeypatch)
    monkeypatch.setattr(calibration.jax, "clear_caches", lambda: None)
    out = tmp_path / "calibration"
    command = ["reproduce", "calibration", "--out", str(out), "--tasks", "point-run", "home-battery", "--alphas", "1"]
    command += ["--steps", "20", "--widths", "8", "--batch-size", "16", "--logged-episodes", "24"]
    command += ["--truth-episodes", "10", "--others", "2", "--shares", "0.5", "1"]
    assert main(command) == 0
    rows = read(out / "results.csv")
    assert {row["task"] for row in rows} == {"point-run", "home-battery"}
    for row in rows:
        for quantity in calibration.TOLD:
            assert float(row[f"{quantity}_low"]) <= float(row[quantity]) <= float(row[f"{quantity}_high"])
        assert float(row["cost_truth"]) <= float(row["cvar_truth"])
    first, second = sorted(out.glob("cells/*.json"))
    first.unlink()
    kept = (second, *out.glob("runs/*/family.json"))
    written = [path.stat().st_mtime_ns for path in kept]
    assert main(command) == 0
    assert read(out / "results.csv") == rows  # what was lost is done again, and nothing else
    assert [path.stat().st_mtime_ns for path in kept] == written
    summary = json.loads((out / "summary.json").read_text())
    assert sum(each["policies"] for each in summary) == len(rows)
    assert "intervals that hold the truth" in " ".join(capsys.readouterr().out.split())


def test_policies_are_those_of_the_limits_and_others_by_the_least_limit_they_may_keep(tmp_path):
    def point(cost, returned, strange=0.0):
        interval = Interval(cost, cost - 1, cost + 1)
        told = Interval(returned, returned, returned)
        return FrontierPoint(0, Point("mode", cost), told, interval, strange, Risk(interval, interval))

    points = tuple(point(cost, cost) for cost in (1.0, 5.0, 9.0, 30.0))
    family = SimpleNamespace(frontier=Frontier(points), policy=lambda chosen, limit: chosen.cost.value)
    found = calibration.subjects(family, 0, [4.0, 10.0, 20.0], others=4)
    assert sorted(found) == [(1.0, 4.0), (5.0, 10.0), (9.0, 10.0), (30.0, 20.0)]


def calibrated(cost, truth, limit, verdict, **others):
    row = {"task": "t", "cost_limit": limit, "verdict": verdict}
    for quantity in calibration.TOLD:
        row |= {quantity: cost, f"{quantity}_low": cost - 1, f"{quantity}_high": cost + 1}
        row |= {f"{quantity}_truth": truth, f"{quantity}_truth_se": 0.0}
    return row | others


def test_calibration_counts_what_holds_and_the_unsafe_behind_each_verdict():
    rows = [
        calibrated(9.0, 12.0, 10.0, "meets"),
        calibrated(6.0, 6.5, 10.0, "meets"),
        calibrated(9.5, 6.0, 10.0, "cannot be told"),
        calibrated(30.0, 30.0, 10.0, "does not meet"),
    ]
    summary = calibration.summarise(rows)
    assert summary["cost"]["coverage"] == 0.5
    assert summary["cost"]["bias"] == pytest.approx((-3 - 0.5 + 3.5) / 4)
    assert summary["verdicts"] == {
        "meets": 2,
        "meets_wrongly": 1,
        "does_not_meet": 1,
        "does_not_meet_wrongly": 0,
        "far_within": 2,
        "far_within_not_told": 1,
    }


def test_a_truth_that_is_only_known_roughly_widens_what_counts_as_held():
    off = calibrated(9.0, 11.5, 10.0, "meets")
    assert not calibration.holds(off, "cost")
    assert calibration.holds(off | {"cost_truth_se": 1.3}, "cost")


def test_the_dearest_tenth_of_simulated_episodes_by_hand():
    sums = np.zeros((20, 4))
    sums[:, 1] = range(20)
    found = calibration.truths(sums, 14.0)
    assert found["cvar_truth"] == pytest.approx(18.5, abs=0.5)
    assert found["share_over_truth"] == 0.25
