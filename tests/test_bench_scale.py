"""What the whole of Table 2 would take: cells dealt to cores, by hand and as a command."""

import csv
import json

import pytest

from corsdice.cli import main
from corsdice.experiments import bench_scale
from corsdice.experiments.bench_configs import BenchScaleConfig
from corsdice.experiments.bench_scale import Speed, cell_seconds, makespan, measure

SLOW = Speed("bear-lag", updates_per_second=10.0, start_seconds=1.0)
FAST = Speed("bc-all", updates_per_second=100.0, start_seconds=1.0)
CONFIG = BenchScaleConfig(tasks=1, limits=2, policies=3, steps=100, policy_seconds=2.0, cores=1)


def test_a_cell_is_its_start_and_its_policies():
    assert cell_seconds(CONFIG, SLOW, 3) == [1 + 3 * (10 + 2)] * 2
    assert cell_seconds(CONFIG, SLOW, 2) == [1 + 2 * 12, 1 + 12] * 2
    assert cell_seconds(CONFIG, SLOW, 25) == cell_seconds(CONFIG, SLOW, 3)


def test_one_core_does_all_and_many_wait_for_the_longest():
    assert makespan(CONFIG, [SLOW, FAST], 1, 3) == 2 * 37 + 2 * 10
    assert makespan(CONFIG, [SLOW, FAST], 100, 3) == 37
    assert makespan(CONFIG, [SLOW, FAST], 100, 1) == 13
    assert makespan(CONFIG, [SLOW, FAST], 2, 3) == 37 + 10  # the longest first, then where there is room


def test_the_command_adds_up_what_it_has_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench_scale, "METHODS", ("bc-all",))
    assert main(["bench", "scale", "--out", str(tmp_path), "--updates", "5", "--machines", "1", "2000"]) == 0
    with (tmp_path / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    each = 1e6 / float(row["updates_per_second"]) + 60
    hours = 38 * 3 * (float(row["start_seconds"]) + 25 * each) / 3600
    assert float(row["core_hours"]) == pytest.approx(hours)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["hours"][0]["cells_of_25"] == pytest.approx(hours / 2)
    assert summary["hours"][1]["cells_of_25"] == pytest.approx(hours / (38 * 3))
    assert "machines of 2 cores" in capsys.readouterr().out


def test_a_mistake_is_told(capsys):
    assert main(["bench", "scale", "--cores", "0"]) == 2
    assert "--cores must be at least 1" in capsys.readouterr().err


def test_the_measurement_keeps_to_one_core(monkeypatch):
    kept = []
    monkeypatch.setattr(bench_scale.os, "sched_setaffinity", lambda pid, cores: kept.append((pid, cores)))
    assert measure("bc-all", 3)["updates_per_second"] > 0
    assert [(pid, len(cores)) for pid, cores in kept] == [(0, 1)]
