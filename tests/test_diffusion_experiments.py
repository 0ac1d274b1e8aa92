"""Ways to act compared, Table 3, and the cost of acting: small runs of the commands."""

import csv
import json
from typing import get_args

import pytest

from coarse import coarsen
from corsdice.actors import Deterministic, Mode
from corsdice.algorithms import by_name
from corsdice.cli import main
from corsdice.experiments.actors import ACTORS, cells_of, summarise, trained
from corsdice.experiments.actors_config import ActorName, ActorsConfig
from corsdice.experiments.bench_configs import BenchDiffusionConfig
from corsdice.experiments.bench_diffusion import update_flops
from corsdice.networks import Actor

SMALL = (
    *("--tasks", "point-run", "--seeds", "1", "--steps", "10", "--widths", "8", "--batch-size", "16"),
    *("--episodes", "4", "--logged-episodes", "40", "--alphas", "0.3"),
)


def policy(actor, cost, estimated, failure=None):
    place = {"task": "point-run", "cost_limit": 5.0, "actor": actor, "failure": failure}
    return place | {"cost": cost, "estimated_cost": estimated, "return": 2 * cost if cost else None}


def test_every_way_to_act_is_one_of_its_family():
    config = ActorsConfig(actors=get_args(ActorName))
    found = {}
    for name in config.actors:
        algorithm, options = trained(config, ACTORS[name].family)
        found[name] = by_name(algorithm).config(**options).ways(2)[ACTORS[name].way].actor
    assert found["gaussian"] == Actor(2, (256, 256), 1, squash=True)
    assert found["mixture"].components > 1
    assert found["mode"] == Mode(found["mixture"])
    assert isinstance(found["improved"], Deterministic)
    assert [found[name].candidates for name in ("resampled", "guided", "selected")] == [16, 1, 16]
    assert found["guided-by-energy"].by == "energy"
    assert len(set(found.values())) == 8


def test_ways_of_one_family_share_its_training(tmp_path):
    config = ActorsConfig(tasks=("point-run",), actors=("mixture", "guided", "improved"))
    cells = cells_of(config, tmp_path)
    assert {family: cell.ways for (_, family), cell in cells.items()} == {
        "mixture": ("draws", "improved"),
        "guided": ("guide",),
    }


def test_the_summary_by_hand():
    policies = [policy("gaussian", 4.0, 1.0), policy("gaussian", 8.0, 9.0), policy("mixture", 2.0, 2.0)]
    gaussian, mixture = summarise([*policies, policy("mixture", None, None, failure="stopped")])
    assert gaussian == {
        "task": "point-run",
        "cost_limit": 5.0,
        "actor": "gaussian",
        "policies": 2,
        "return": 12.0,
        "cost": 6.0,
        "highest_cost": 8.0,
        "error": 2.0,
        "safe": 1,
    }
    assert (mixture["policies"], mixture["error"], mixture["safe"]) == (1, 0.0, 1)


def test_the_work_of_an_update_by_hand():
    """One block, so no mirrored one: 17 -> 128 -> 128 -> 4, 32 -> 32 -> 4, 6 -> 4, two of 4 -> 4, 4 -> 6."""
    config = BenchDiffusionConfig(width=4, blocks=1, batch_size=10)
    first, others = 17 * 128 + 32 * 32 + 6 * 4, 128 * 128 + 128 * 4 + 32 * 4 + 2 * 4 * 4 + 4 * 6
    assert update_flops(config) == 2 * 10 * (2 * first + 3 * others)


@pytest.mark.slow
def test_ways_to_act_are_compared_and_what_is_done_is_not_done_again(tmp_path, capsys, monkeypatch):
    coarsen(monkeypatch)
    names = ["mixture", "improved", "resampled"]
    command = ["reproduce", "actors", *SMALL, "--actors", *names, "--out", str(tmp_path)]
    command += ["--score-width", "8", "--score-steps", "5", "--candidates", "2"]
    assert main(command) == 0
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["actor"], row["cost_limit"], row["way"]) for row in rows] == [
        (name, "5.0", ACTORS[name].way) for name in names
    ]
    assert all(float(row["cost"]) >= 0 for row in rows)
    assert [line["actor"] for line in json.loads((tmp_path / "summary.json").read_text())] == names
    cells = [tmp_path / "mixture", tmp_path / "resampled"]
    cells = [
        cells[0] / "cells/point-run/corsdice/limit-5-draws-improved.json",
        *cells[1].rglob("limit-5-resample.json"),
    ]
    written = [path.stat().st_mtime_ns for path in cells]
    assert len(written) == 2
    assert main(command) == 0
    assert [path.stat().st_mtime_ns for path in cells] == written
    assert main([*command, "--candidates", "3"]) == 2
    assert "was started with another candidates" in capsys.readouterr().err


@pytest.mark.slow
def test_table_three_runs_on_an_embedded_task(tmp_path):
    command = ["reproduce", "dsrl-advanced", *SMALL, "--algorithms", "d-bc-all", "--out", str(tmp_path)]
    assert main(command) == 0
    with (tmp_path / "results.csv").open() as file:
        assert {row["algorithm"] for row in csv.DictReader(file)} == {"d-bc-all"}


@pytest.mark.slow
def test_the_cost_of_acting_is_shown(capsys):
    small = ("--width", "8", "--blocks", "2", "--batch-size", "16", "--updates", "3", "--solver-steps", "2")
    assert main(["bench", "diffusion", *small, "--candidates", "2", "--rows", "3"]) == 0
    shown = capsys.readouterr().out
    assert "updates/s" in shown
    assert "resampled" in shown
