"""The commands that compare estimates with simulation, on small settings: what they write, and that they go on."""

import csv
import json

import pytest

from coarse import coarsen
from corsdice.cli import main
from corsdice.experiments.calibration import summarise as summarise_calibration
from corsdice.experiments.ope import COLUMNS, PUBLISHED, summarise
from corsdice.policy_family import load_family

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
    cells = sorted((out / "cells" / "point-ridge").iterdir())
    written = [cell.stat().st_mtime_ns for cell in cells]
    cells[1].unlink()
    assert main(command) == 0
    assert cells[0].stat().st_mtime_ns == written[0]
    assert read(out / "results.csv") == rows
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


def test_calibration_writes_estimates_truths_and_what_the_verdicts_were_worth(tmp_path, capsys, monkeypatch):
    coarsen(monkeypatch)
    out = tmp_path / "calibration"
    command = ["reproduce", "calibration", "--out", str(out), "--task", "point-run", "--seeds", "1", *SMALL]
    command += ["--limits", "30", "60", "--alphas", "1"]
    assert main(command) == 0
    rows = read(out / "results.csv")
    first, second = sorted(out.glob("cells/*/*.json"))
    first.unlink()
    kept = (second, out / "run" / "family.json")
    written = [path.stat().st_mtime_ns for path in kept]
    assert main(command) == 0
    assert read(out / "results.csv") == rows  # what was lost is done again, and nothing else
    assert [path.stat().st_mtime_ns for path in kept] == written
    frontier = load_family(out / "run" / "family").frontier
    assert {each.point.way for each in frontier.points} == {"draws", "mode", "improved"}
    for row in rows:
        point = frontier.nearest(float(row["cost_limit"])).point
        assert (row["way"], float(row["multiplier"])) == (point.way, pytest.approx(point.multiplier))
    assert [(float(row["cost_limit"]), row["quantity"]) for row in rows] == [
        (limit, quantity) for limit in (30, 60) for quantity in ("return", "cost")
    ]
    summary = json.loads((out / "summary.json").read_text())
    assert sum(count["policies"] for count in summary["verdicts"].values()) == 2
    assert "verdict meets" in capsys.readouterr().out


def test_calibration_counts_the_unsafe_behind_each_verdict():
    told = [(10.0, 12.0, "meets"), (10.0, 9.0, "meets"), (10.0, 30.0, "does not meet")]
    rows = [row(truth, truth, quantity="cost", cost_limit=limit, verdict=verdict) for limit, truth, verdict in told]
    rows += [row(1.0, 1.0, verdict="meets")]
    summary = summarise_calibration(rows)
    assert summary["verdicts"]["meets"] == {"policies": 2, "over_the_limit": 1}
    assert summary["verdicts"]["does not meet"] == {"policies": 1, "over_the_limit": 1}
    assert summary["cost"]["coverage"] == 1
