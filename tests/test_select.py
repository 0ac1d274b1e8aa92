"""Kept checkpoints, and the choice among them by estimates alone."""

import json
import shutil

import pytest

from coarse import learn_little
from corsdice import data, envs, load
from corsdice.cli import main
from corsdice.errors import UserError
from corsdice.experiments.selection import beside_oracle
from corsdice.training import candidates, directory
from corsdice.training.run import plan_of

LIMIT = 20.0
SMALL = {"steps": 40, "widths": (8, 8), "batch_size": 16}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


@pytest.fixture(scope="module")
def log_file(logs, tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "logs.hdf5"
    data.write(logs, path)
    return path


@pytest.fixture(scope="module")
def trained(logs, tmp_path_factory):
    """A clone of two seeds and three kept steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    directory.train(out, small_plan(logs), logs, "the logs")
    return out


@pytest.fixture
def run(trained):
    yield trained
    (trained / candidates.MEMORY).unlink(missing_ok=True)


def small_plan(logs, limits=(LIMIT,), **changes):
    settings = {"seeds": 2, "chunk": 10, "mode": "map", "keep": 3} | changes
    return plan_of("bc-all", logs, list(limits), options=SMALL, **settings)


def policies_of(run):
    folder = run / directory.POLICIES
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def stop_at(step):
    def progress(now, rows, fresh):
        if now == step:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def fabricated(monkeypatch):
    """Estimates by (seed, step), and which policies were asked about; what is not told may cost too much."""
    told, asked = {}, []

    class Fabricator:
        def __init__(self, evidence, models):
            pass

        def record(self, policy, limit):
            question = policy.about["seed"], policy.about["step"]
            asked.append(question)
            returned, cost, verdict = told.get(question, (1.0, 30.0, "cannot be told"))
            return {
                "return": {"value": returned, "low": returned - 1, "high": returned + 1},
                "cost": {"value": cost, "low": cost - 1, "high": cost + 1},
                "verdict": verdict,
                "reason": "so it was told",
                "words": f"{verdict}: so it was told",
            }

    monkeypatch.setattr(candidates, "Assessor", Fabricator)
    return told, asked


def select(capsys, *arguments):
    """The exit code, and what was printed: the choices where they are JSON."""
    code = main(["select", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, json.loads(shown.out) if "--json" in arguments and shown.out else shown.out, shown.err


def test_kept_checkpoints_are_those_of_evenly_spaced_steps_stopped_or_not(logs, trained, tmp_path):
    # Thirds of 40 steps are crossed by the chunks that end at 20 and 30.
    assert sorted(path.name for path in (trained / directory.POLICIES).glob("step-*")) == ["step-000020", "step-000030"]
    assert [candidate.policy.about["step"] for candidate in candidates.candidates_of(trained)] == [
        20,
        20,
        30,
        30,
        40,
        40,
    ]
    for step in (10, 20):
        with pytest.raises(KeyboardInterrupt):
            directory.train(tmp_path, small_plan(logs), logs, "the logs", stop_at(step))
    with pytest.raises(UserError, match="has not ended its training"):
        candidates.candidates_of(tmp_path)
    directory.train(tmp_path, small_plan(logs), logs, "the logs")
    assert policies_of(tmp_path) == policies_of(trained)


def test_runs_that_do_not_say_what_they_keep_are_gone_on_with(logs, tmp_path):
    plan = small_plan(logs, keep=1)
    with pytest.raises(KeyboardInterrupt):
        directory.train(tmp_path, plan, logs, "the logs", stop_at(20))
    content = json.loads((tmp_path / directory.DESCRIPTION).read_text())
    del content["keep"]
    (tmp_path / directory.DESCRIPTION).write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"keep \(1, now 3\)"):
        directory.train(tmp_path, small_plan(logs), logs, "the logs")
    assert directory.train(tmp_path, plan, logs, "the logs").done
    assert len(candidates.candidates_of(tmp_path)) == 2


def test_more_cannot_be_kept_than_there_are_steps(logs):
    with pytest.raises(UserError, match="--keep must be between 1 and the 40 steps"):
        small_plan(logs, keep=41)
    assert small_plan(logs, keep=20).chunk == 2


def test_the_largest_return_of_those_that_meet_the_limit_is_chosen_written_and_remembered(
    run, log_file, fabricated, capsys, tmp_path
):
    told, asked = fabricated
    told |= {(0, 20): (5.0, 10.0, "meets"), (1, 30): (7.0, 15.0, "meets"), (0, 40): (9.0, 25.0, "does not meet")}
    command = (run, "--data", log_file, "--out", tmp_path / "new" / "best")
    code, (choice,), _ = select(capsys, *command, "--json")
    assert code == 0
    chosen = choice["chosen"]
    assert (chosen["seed"], chosen["step"], chosen["run"]) == (1, 30, str(run))
    assert choice["why"] == "meets: so it was told; the largest estimated return of 2 that do"
    assert choice["beside_oracle"] is None
    assert [(each["seed"], each["step"]) for each in choice["candidates"][:3]] == [(1, 30), (0, 20), (0, 40)]
    assert len(asked) == len(choice["candidates"]) == 6

    policy = load(tmp_path / "new" / "best")
    assert (policy.about["seed"], policy.about["step"], policy.about["estimate"]["verdict"]) == (1, 30, "meets")
    code, shown, said = select(capsys, *command)
    assert code == 0
    assert len(asked) == 6
    assert "0 of 6 policies to estimate" in said
    assert "→" in shown
    assert "the largest estimated return of 2 that do" in shown


def test_what_was_found_before_a_stop_is_not_asked_again(run, log_file, fabricated, capsys, monkeypatch):
    _, asked = fabricated
    record = candidates.Assessor.record

    def stop(self, question, limit):
        if len(asked) == 4:
            raise KeyboardInterrupt
        return record(self, question, limit)

    monkeypatch.setattr(candidates.Assessor, "record", stop)
    code, _, said = select(capsys, run, "--data", log_file)
    assert code == 2
    assert "run the same command again to go on" in said
    monkeypatch.setattr(candidates.Assessor, "record", record)
    select(capsys, run, "--data", log_file)
    assert len(asked) == len(set(asked)) == 6


def test_where_nothing_is_known_to_be_safe_the_exit_code_and_a_sentence_say_so(run, log_file, fabricated, capsys):
    told, _ = fabricated
    told[1, 20] = (0.0, 20.5, "cannot be told")
    code, shown, _ = select(capsys, run, "--data", log_file)
    assert code == 3
    assert "none is known to meet the limit: the one that may exceed it least (so it was told)" in shown
    code, (choice,), _ = select(capsys, run, "--data", log_file, "--json")
    assert (code, choice["chosen"]["seed"], choice["chosen"]["step"]) == (3, 1, 20)


def test_each_limit_has_its_choice_and_one_of_them_can_be_named(logs, run, log_file, fabricated, capsys, tmp_path):
    two = tmp_path / "two"
    directory.train(two, small_plan(logs, (LIMIT, 40.0), seeds=1, keep=1), logs, "the logs")
    _, choices, _ = select(capsys, two, "--data", log_file, "--json")
    assert [choice["cost_limit"] for choice in choices] == [LIMIT, 40.0]
    _, (choice,), _ = select(capsys, two, run, "--data", log_file, "--json", "--cost-limit", LIMIT)
    assert len(choice["candidates"]) == 7
    for arguments, says in [
        ((two, run), "different cost limits (20, 40): name one with --cost-limit"),
        ((two, "--out", tmp_path / "best"), "--out takes one policy"),
        ((two, "--cost-limit", 7), "no run was trained for --cost-limit 7: choose from 20, 40"),
    ]:
        code, _, said = select(capsys, *arguments, "--data", log_file)
        assert (code, said.count("\n")) == (2, 1)
        assert says in said


def test_other_logs_are_refused_unless_they_are_fresh(run, log_file, fabricated, capsys, tmp_path):
    _, asked = fabricated
    other, held = tmp_path / "other.npz", shutil.copytree(run, tmp_path / "held")
    data.write(envs.collect(envs.TASKS["point-run"], 1, 20), other)
    (held / directory.DESCRIPTION).write_text(json.dumps(directory.description(run) | {"holdout": 0.5}))
    for arguments, says in [
        ((run, "--data", other), "was trained on other logs (the logs)"),
        ((run, "--data", log_file, "--fresh"), "leave --fresh out"),
        ((run, held, "--data", log_file), "the runs differ in their holdout (0.2, 0.5)"),
        ((tmp_path, "--data", log_file), "is not a run"),
    ]:
        code, _, said = select(capsys, *arguments)
        assert (code, said.count("\n")) == (2, 1)
        assert says in said
    assert not asked
    code, (choice,), _ = select(capsys, run, held, "--data", other, "--fresh", "--json")
    assert (code, len(choice["candidates"])) == (3, 12)


def policy(returned, cost, **known):
    return {"return": returned, "cost": cost, "normalised_cost": cost / 20} | known


def test_regret_is_what_the_best_safe_policy_returns_more():
    best, timid, bold = policy(50.0, 20.0), policy(40.0, 3.0), policy(90.0, 20.1)
    worth = beside_oracle(timid, [timid, bold, best])
    assert (worth["safe"], worth["oracle"], worth["regret"], worth["regret_percent"]) == (True, best, 10.0, 20.0)
    unsafe = beside_oracle(bold, [timid, bold, best])
    assert (unsafe["safe"], unsafe["regret"]) == (False, -40.0)
    assert beside_oracle(policy(-6.0, 1.0), [policy(-6.0, 1.0), policy(-4.0, 1.0)])["regret_percent"] == 50.0
    nothing = beside_oracle(bold, [bold])
    assert (nothing["safe_possible"], nothing["regret"], nothing["regret_percent"]) == (False, None, None)


def test_from_logs_to_a_chosen_policy_and_its_regret(logs, log_file, capsys, tmp_path, monkeypatch):
    learn_little(monkeypatch)
    out, best = tmp_path / "run", tmp_path / "best"
    directory.train(out, small_plan(logs, seeds=1, keep=2), logs, "the logs")
    command = (out, "--data", log_file, "--env", "point-run", "--episodes", 10, "--out", best)
    code, (choice,), said = select(capsys, *command, "--json")
    assert code == (0 if choice["chosen"]["verdict"] == "meets" else 3)
    assert "2 of 2 policies to estimate" in said
    assert {candidate["step"] for candidate in choice["candidates"]} == {20, 40}
    for candidate in choice["candidates"]:
        assert candidate["estimated_cost_low"] <= candidate["estimated_cost"] <= candidate["estimated_cost_high"]
    assert choice["beside_oracle"]["safe"] == (choice["chosen"]["cost"] <= LIMIT)
    assert load(best).about["step"] == choice["chosen"]["step"]
    _, shown, said = select(capsys, *command)
    assert "0 of 2 policies to estimate" in said
    assert "0 of 2 policies to simulate" in said
    assert "simulated: the choice is" in shown
