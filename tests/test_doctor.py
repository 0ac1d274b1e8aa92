"""What works on this machine, and why something does not."""

import json
import os

import pytest

from corsdice.cli import main
from corsdice.envs import examine

pytest.importorskip("mujoco")


def test_a_working_simulator_is_stepped(capsys):
    assert main(["doctor", "--suites", "mujoco", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (found,) = report["tasks"]
    assert found["suite"] == "mujoco"
    assert found["problem"] is None
    assert found["steps_a_second"] > 0
    assert report["packages"]["mujoco"]["mujoco"]


def test_what_does_not_work_is_told_with_its_reason(capsys, monkeypatch):
    monkeypatch.setattr(examine, "tasks_of", lambda suite: ["awkward:nowhere"])
    assert main(["doctor", "--suites", "mujoco"]) == 0
    said = capsys.readouterr().out
    assert "0/1" in said
    assert "awkward:nowhere: UserError: cannot import awkward:nowhere" in said


def dies(suite, task):
    os._exit(1)


def test_a_simulator_that_takes_its_process_down_is_a_finding(monkeypatch):
    monkeypatch.setattr(examine, "try_out", dies)
    findings = list(examine.examine("mujoco", ["one", "two"]))
    assert [finding.problem for finding in findings] == ["its process died"] * 2
    assert [finding.task for finding in findings] == ["one", "two"]


def test_there_are_38_tasks_and_three_walkers():
    counts = {suite: len(examine.tasks_of(suite)) for suite in examine.PACKAGES}
    assert counts == {"bullet": 8, "safety-gymnasium": 21, "metadrive": 9, "mujoco": 3}
