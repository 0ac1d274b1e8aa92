"""From a log file to a policy, its estimate, its truth and its report, through the command line."""

import json

import numpy as np
import pytest

from corsdice import data, envs
from corsdice.cli import main
from corsdice.ope.imagined import IMAGINED_ROWS
from corsdice.training import directory
from corsdice.training.run import plan_of, split

SMALL = ("--steps", "40", "--chunk", "20", "--widths", "8", "--batch-size", "16", "--population", "map")
ESTIMATE_FIELDS = {
    "member",
    "cost_limit",
    "unit",
    "return",
    "cost",
    "naive_cost",
    "pi_w_cost",
    "strange",
    "episode_costs",
    "second_opinions",
    "verdict",
    "reason",
}
TRUTH_FIELDS = {
    "member",
    "env",
    "episodes",
    "return",
    "return_se",
    "cost",
    "cost_se",
    "discounted_return",
    "discounted_return_se",
    "discounted_cost",
    "discounted_cost_se",
    "normalised_return",
    "normalised_cost",
}


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "point-run.npz"
    assert main(["data", "make", "point-run", str(path), "--episodes", "20"]) == 0
    return path


@pytest.fixture(scope="module")
def run(log_file, tmp_path_factory):
    """Two limits of semidice, so that there is a naive estimate to tell."""
    out = tmp_path_factory.mktemp("runs") / "run"
    limits = ("--algorithm", "semidice", "--cost-limit", "40", "80")
    assert main(["train", str(log_file), "--out", str(out), *limits, *SMALL]) == 0
    return out


def parsed(capsys, *arguments):
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def refusal(capsys, *arguments):
    """The one line on stderr of a command that must fail with code 2."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("corsdice: ")
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err
    return shown.err


def member_names(run):
    return [member["name"] for member in directory.description(run)["members"]]


def test_train_leaves_everything_that_a_reader_needs(run, log_file):
    names = {path.name for path in run.iterdir()}
    assert names == {
        "run.json",
        "metrics.jsonl",
        "checkpoint.safetensors",
        "policies",
        "tensorboard",
        "ope.json",
        "report.html",
    }
    content = directory.description(run)
    assert content["data"]["source"] == str(log_file)
    assert [member["cost_limit"] for member in content["members"]] == [40.0, 80.0]
    assert len(directory.load_policies(run)) == 2


def test_ope_tells_each_policy_with_an_interval_and_a_verdict(run, capsys):
    results = parsed(capsys, "ope", run)
    assert [result["member"] for result in results] == member_names(run)
    for result in results:
        assert result.keys() >= ESTIMATE_FIELDS
        assert result["verdict"] in ("meets", "does not meet", "cannot be told")
        assert result["reason"]
        for quantity in ("return", "cost"):
            assert result[quantity]["low"] <= result[quantity]["value"] <= result[quantity]["high"]
        assert 0 <= result["strange"] <= 1
        imagined = IMAGINED_ROWS // envs.TASKS["point-run"].horizon
        assert sum(result["episode_costs"]["counts"]) == pytest.approx(imagined, rel=0.01)
        assert np.isfinite([result["naive_cost"], result["pi_w_cost"]]).all()
        assert result["cost_limit"] > 0
        assert result["second_opinions"] == {}
    assert results == json.loads((run / "ope.json").read_text())["results"]


def test_ope_on_other_logs_leaves_the_estimates_of_the_run_alone(run, tmp_path, capsys):
    before = (run / "ope.json").read_bytes()
    other = tmp_path / "other.npz"
    data.write(envs.collect(envs.TASKS["point-run"], 1, 4), other)
    results = parsed(capsys, "ope", run, "--data", other)
    assert results != json.loads(before)["results"]
    assert (run / "ope.json").read_bytes() == before


def test_ope_shows_a_table_without_json(run, capsys):
    capsys.readouterr()
    assert main(["ope", str(run)]) == 0
    shown = capsys.readouterr().out
    for name in member_names(run):
        assert name in shown


@pytest.mark.parametrize(
    ("env", "episodes"), [("point-run", 10), ("corsdice.envs.gym:corsdice/point-run-v0", 2)], ids=["embedded", "gym"]
)
def test_evaluate_and_then_report_tell_the_truth_too(env, episodes, run, tmp_path, capsys):
    if ":" in env:
        pytest.importorskip("gymnasium")
    results = parsed(capsys, "evaluate", run, "--env", env, "--episodes", episodes)
    assert [result["member"] for result in results] == member_names(run)
    low, high = (directory.description(run)["data"][f"{which}_return"] for which in ("lowest", "highest"))
    for result, limit in zip(results, (40, 80), strict=True):
        assert result.keys() >= TRUTH_FIELDS
        assert (result["env"], result["episodes"]) == (env, episodes)
        assert 0 <= result["cost"] <= envs.TASKS["point-run"].horizon
        assert result["normalised_cost"] == pytest.approx(result["cost"] / limit)
        assert result["normalised_return"] == pytest.approx((result["return"] - low) / (high - low))
    assert results == json.loads((run / "evaluation.json").read_text())["results"]

    target = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    page = target.read_text()
    assert "semidice on point-run.npz" in page
    assert "seed 0, α 0.3, limit 40" in page


def test_evaluate_is_the_same_every_time_and_another_seed_differs(run, capsys):
    first, again, other = (
        parsed(capsys, "evaluate", run, "--env", "point-run", "--episodes", 10, "--seed", seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first[0]["return"] != other[0]["return"]


def test_ope_says_when_the_logs_have_changed_since(run, log_file, tmp_path, capsys):
    described = json.loads((run / "run.json").read_text())
    moved = tmp_path / "run"
    moved.mkdir()
    other = tmp_path / "logs.npz"
    data.write(envs.collect(envs.TASKS["point-run"], 1, 6), other)
    described["data"]["source"] = str(other)
    (moved / "run.json").write_text(json.dumps(described))
    assert "has changed since the run" in refusal(capsys, "ope", moved)


def unequal_timeouts():
    logs = envs.collect(envs.TASKS["point-run"], 0, 4)
    timeouts = logs.timeouts.copy()
    timeouts[29] = True
    return logs._replace(timeouts=timeouts)


def test_the_horizon_is_asked_for_where_the_data_do_not_tell_it(tmp_path, capsys):
    path = tmp_path / "logs.npz"
    data.write(unequal_timeouts(), path)
    command = ("train", path, "--out", tmp_path / "run", "--cost-limit", 40, "--algorithm", "bc-all", *SMALL)
    said = refusal(capsys, *command)
    assert "timeouts come after 30 to 100 steps" in said
    assert "--horizon" in said
    assert not (tmp_path / "run").exists()
    assert plan_of("bc-all", unequal_timeouts(), [40.0], horizon=100).horizon == 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--algorithm", "corsdyce"), "corsdice"),
        (("--algorithm", "bc-safe", "--cost-limit", "-1"), "a cost limit must be a finite number >= 0"),
        (("--cost-limit", "inf"), "a cost limit must be a finite number >= 0"),
        (("--cost-limt", "40"), "--cost-limit"),
        (("--alpha", "0"), "alpha"),
        (("--steps", "0"), "steps"),
        (("--seeds", "0"), "seeds"),
        (("--holdout", "1"), "--holdout must be between 0 and 1"),
        (("--holdout", "0.001"), "cannot be split"),
        (("--discount", "1"), "the discount must be in [0, 1)"),
        (("--algorithm", "bc-all", "--divergence", "kl"), "bc-all has no option divergence"),
        (("--preset", "papper"), "'paper'"),
        (("--algorithm", "bc-all", "--limit-on", "cvar"), "bc-all has none"),
    ],
)
def test_a_mistake_in_train_is_one_line_and_code_2(arguments, says, log_file, tmp_path, capsys):
    out = tmp_path / "run"
    limit = () if "--cost-limit" in arguments else ("--cost-limit", "40")
    assert says in refusal(capsys, "train", log_file, "--out", out, *limit, *SMALL, *arguments)
    assert not (out / "checkpoint.safetensors").exists()


def test_bc_safe_without_a_safe_episode_says_so(tmp_path, capsys):
    logs = envs.collect(envs.TASKS["point-run"], 0, 10)
    path = tmp_path / "unsafe.npz"
    data.write(logs._replace(costs=np.ones_like(logs.costs)), path)
    command = ("train", path, "--out", tmp_path / "run", "--algorithm", "bc-safe", "--cost-limit", 5, *SMALL)
    assert "no logged episode costs 5 or less" in refusal(capsys, *command)


def test_bc_safe_says_so_where_the_only_safe_episodes_are_held_out(tmp_path, capsys):
    logs = envs.collect(envs.TASKS["point-run"], 0, 10)
    numbers = np.repeat(np.arange(10), envs.TASKS["point-run"].horizon).astype(np.float32)
    held = split(logs._replace(rewards=numbers), 0.3).held_out.rewards
    path = tmp_path / "unsafe.npz"
    data.write(logs._replace(costs=np.where(np.isin(numbers, held), 0, 1).astype(np.float32)), path)
    command = ("train", path, "--out", tmp_path / "run", "--algorithm", "bc-safe", "--cost-limit", 5)
    assert "safe" in refusal(capsys, *command, "--holdout", 0.3, *SMALL)


@pytest.mark.parametrize("command", [("ope",), ("report",), ("evaluate", "--env", "point-run")])
def test_what_is_no_run_is_one_line_and_code_2(command, tmp_path, capsys):
    assert "is not a run" in refusal(capsys, command[0], tmp_path / "nothing", *command[1:])


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("point-rum-v0", "cannot make point-rum-v0"),
        ("no_such_module:task-v0", "cannot make no_such_module:task-v0"),
        ("Pendulum-v1", "the policy's actions have shape (2,), those of Pendulum-v1 (1,)"),
    ],
)
def test_an_environment_that_does_not_fit_is_one_line_and_code_2(env, says, run, capsys):
    pytest.importorskip("gymnasium")
    assert says in refusal(capsys, "evaluate", run, "--env", env, "--episodes", 2)


@pytest.mark.parametrize(("option", "least"), [("--episodes", 2), ("--workers", 1), ("--seed", 0)])
def test_evaluate_says_what_it_needs(option, least, run, capsys):
    said = refusal(capsys, "evaluate", run, "--env", "point-run", option, least - 1)
    assert f"{option} must be at least {least}, got {least - 1}" in said


def test_ope_takes_a_saved_policy_or_a_function_with_second_opinions(run, tmp_path, capsys, monkeypatch):
    other = tmp_path / "other.npz"
    data.write(envs.collect(envs.TASKS["point-run"], 1, 6), other)
    saved = sorted((run / "policies").glob("*.json"))[0]
    (result,) = parsed(capsys, "ope", saved, "--data", other, "--cost-limit", 30)
    assert result["cost_limit"] == pytest.approx(30)
    (tmp_path / "drivers.py").write_text("import numpy\ndef idle(rows): return numpy.zeros((len(rows), 2))\n")
    monkeypatch.chdir(tmp_path)
    (idle,) = parsed(capsys, "ope", "drivers:idle", "--data", other, "--cost-limit", 30)
    assert idle["return"]["value"] < result["return"]["value"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere:policy", "--data", "{logs}", "--cost-limit", "3"), "cannot import nowhere:policy"),
        (("{policy}", "--cost-limit", "3"), "--data is needed"),
        (("json:dumps", "--data", "{logs}"), "--cost-limit is needed"),
        (("no-such-policy", "--data", "{logs}"), "no-such-policy is not a run, nor a saved policy"),
        (("{run}", "--limit-on", "cvar"), "--limit-on says what --cost-limit is put on"),
    ],
)
def test_ope_says_what_it_needs(arguments, says, run, log_file, capsys):
    places = {"run": run, "logs": log_file, "policy": sorted((run / "policies").glob("*.json"))[0]}
    assert main(["ope", *(argument.format(**places) for argument in arguments)]) == 2
    assert says in capsys.readouterr().err
