"""What the whole of Table 2 would take: cells dealt to cores, by hand and as a command."""

import csv
import json

import pytest

from corsdice.algorithms import by_name
from corsdice.cli import main
from corsdice.experiments import bench_scale
from corsdice.experiments.bench_configs import BenchScaleConfig
from corsdice.experiments.bench_scale import Speed, cell_seconds, makespan, measure
from corsdice.experiments.bench_training import update_flops

SLOW = Speed("bear-lag", updates_per_second=10.0, start_seconds=1.0)
FAST = Speed("bc-all", updates_per_second=100.0, start_seconds=1.0)
FAMILY = Speed("corsdice", updates_per_second=10.0, start_seconds=1.0, is_family=True)
CONFIG = BenchScaleConfig(tasks=1, limits=2, members=3, steps=100, policy_seconds=2.0, frontier_seconds=5.0, cores=1)


def test_a_cell_is_its_start_and_its_policies():
    assert cell_seconds(CONFIG, SLOW, 3) == [1 + 3 * (10 + 2)] * 2
    assert cell_seconds(CONFIG, SLOW, 2) == [1 + 2 * 12, 1 + 12] * 2
    assert cell_seconds(CONFIG, SLOW, 25) == cell_seconds(CONFIG, SLOW, 3)


def test_a_family_is_trained_once_and_traced_once_for_all_limits():
    assert cell_seconds(CONFIG, FAMILY, 3) == [1 + 3 * (10 + 5 + 2 * 2)]
    assert cell_seconds(CONFIG, FAMILY, 2) == [1 + 2 * 19, 1 + 19]


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


@pytest.mark.parametrize(("algorithm", "is_family"), [("bc-all", False), ("corsdice", True)])
def test_the_measurement_keeps_to_one_core(algorithm, is_family, monkeypatch):
    kept = []
    monkeypatch.setattr(bench_scale.os, "sched_setaffinity", lambda pid, cores: kept.append((pid, cores)))
    speed = Speed(**measure(algorithm, 3))
    assert speed.updates_per_second > 0
    assert speed.is_family == is_family
    assert [(pid, len(cores)) for pid, cores in kept] == [(0, 1)]


def test_the_work_of_an_update_of_the_family_by_hand():
    """Two critics, networks of one layer of 4, 17 observations, 6 actions, 4 numbers of λ and 2 of imitation."""
    config = by_name("corsdice").config(widths=(4,), batch_size=10, components=1)
    nu = (2 * 21 * 4 + 3 * 4) + (21 * 4 + 4)  # trained, where nothing is passed on to the input; and at s'
    q = 2 * ((2 * 27 * 4 + 3 * 4) + (27 * 4 + 4))
    clone = 2 * 21 * 4 + 3 * 4 * 13
    improved = (2 * 23 * 4 + 3 * 4 * 6) + 2 * 2 * (27 * 4 + 4)
    assert update_flops(config, 17, 6) == 2 * 10 * (nu + q + clone + improved)


def test_algorithm_1_has_four_passes_of_its_extraction_besides():
    paper = by_name("corsdice-paper")
    with_extraction, without = (
        update_flops(paper.config(widths=(4,), batch_size=10, estimate=name), 17, 6) for name in ("networks", "none")
    )
    assert with_extraction - without == 2 * 10 * 4 * (2 * 17 * 4 + 3 * 4)


@pytest.mark.slow
def test_training_is_measured_in_a_process_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "training", "--populations", "1", "--updates", "3"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if "corsdice" in line] == ["corsdice", "corsdice-paper"]
