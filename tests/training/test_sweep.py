"""A search: what it draws, in which order it ranks, and that no way of stopping it changes how it ends."""

import csv
import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corsdice import data, envs
from corsdice.cli import main
from corsdice.errors import UserError
from corsdice.ope import preference
from corsdice.policy import load
from corsdice.training import directory
from corsdice.training.assess import assessor_of
from corsdice.training.journal import FILE, Journal
from corsdice.training.population import Member
from corsdice.training.run import Trainer, plan_from, plan_of
from corsdice.training.space import parse_space
from corsdice.training.sweep import batches_of, draw, sweep, value_of, write_results

LIMIT = 40.0
OPTIONS = {"steps": 40, "widths": (8, 8), "batch_size": 16}
SEARCH = {"algorithm": "bc-all", "trials": 4, "batch": 3, "chunk": 10, "options": OPTIONS}


@pytest.fixture(scope="module")
def logs():
    return envs.collect(envs.TASKS["point-run"], 0, 20)


class QuickAssessor:
    """Numbers that depend on the policy alone, at once; the estimates themselves have their own tests."""

    def ask(self, policy):
        return policy

    def record(self, policy, limit, limit_on="mean"):
        size = float(sum(np.abs(leaf).sum() for leaf in jax.tree.leaves(policy.params.actor)))
        around = {"value": size, "low": size - 1, "high": size + 1}
        verdict = "meets" if policy.about["alpha"] < 1 else "does not meet"
        return {"cost_limit": limit.episode, "return": around, "cost": around, "verdict": verdict, "words": "told"}

    def learned(self, outcome, index):
        return {}


@pytest.fixture(scope="module", autouse=True)
def _quick_estimates():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corsdice.training.sweep.assessor_of", lambda outcome, evidence, models: QuickAssessor())
        yield


@pytest.fixture(scope="module")
def pruned(logs, tmp_path_factory, _quick_estimates):
    """A search with pruning that nothing has stopped."""
    out = tmp_path_factory.mktemp("pruned")
    ranked = sweep(out, logs, "memory", LIMIT, prune=True, **SEARCH)
    return out, ranked, write_results(out, ranked, {})


def test_a_space_is_read_and_alpha_is_always_part_of_it():
    space = parse_space(
        ["learning_rate=uniform:1e-4:1e-3", "components=choice:1,3", "squash=choice:true,False"], "corsdice"
    )
    assert list(space) == ["alpha", "learning_rate", "components", "squash"]
    assert (space["alpha"].low, space["alpha"].high, space["alpha"].log) == (1e-3, 100, True)
    assert (space["learning_rate"].low, space["learning_rate"].high, space["learning_rate"].log) == (1e-4, 1e-3, False)
    assert space["components"].choices == (1, 3)
    assert space["squash"].choices == (True, False)
    assert parse_space(["alpha=choice:0.3"], "corsdice")["alpha"].choices == (0.3,)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("alpah=log:1:2", "choose from alpha, learning_rate"),
        ("steps=choice:1,2", "has no 'steps'"),
        ("alpha", "write name=log:LOW:HIGH"),
        ("alpha=log:1", "write name=log:LOW:HIGH"),
        ("alpha=log:0:1", "0 is not positive"),
        ("alpha=log:2:1", "0 < LOW < HIGH"),
        ("alpha=uniform:-1:1", "-1 is not positive"),
        ("alpha=log:1:nan", "'nan' is not a number"),
        ("components=log:1:5", "write name=choice:A,B"),
        ("components=choice:1,2.5", "'2.5' is not a whole number"),
        ("components=choice:0", "0 is not positive"),
        ("discount=uniform:0.9:0.99", "give a few values: discount=choice:A,B"),
        ("way=choice:guide,guess", "'guess' is none of resample, guide"),
        ("squash=choice:maybe", "'maybe' is none of true, false"),
    ],
)
def test_a_mistake_in_a_space_is_told_in_one_line(text, told):
    with pytest.raises(UserError) as error:
        parse_space([text], "d-corsdice")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_name_is_stated_once():
    with pytest.raises(UserError, match="twice"):
        parse_space(["alpha=log:1:2", "alpha=log:1:3"], "corsdice")


estimates = st.tuples(
    st.sampled_from(["meets", "does not meet", "cannot be told"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e300, 1e300) | st.sampled_from([math.inf, math.nan]),
)


@given(estimates, estimates)
def test_the_one_number_orders_as_preference_does(first, second):
    better, worse = sorted((first, second), key=lambda found: preference(*found, LIMIT), reverse=True)
    assert value_of(*better, LIMIT) >= value_of(*worse, LIMIT)
    (high_meets, high), (low_meets, low) = preference(*better, LIMIT), preference(*worse, LIMIT)
    if high_meets != low_meets or high - low > 1e-11 * (1 + max(abs(high), abs(low))):
        assert value_of(*better, LIMIT) > value_of(*worse, LIMIT)


def test_draws_depend_on_the_seed_alone_and_trials_of_a_batch_share_what_is_compiled_in():
    space = parse_space(["components=choice:1,3"], "corsdice")
    draws = draw(space, 0, 12)
    assert draws == draw(space, 0, 12)
    assert draws != draw(space, 1, 12)
    assert all(1e-3 <= drawn["alpha"] <= 100 for drawn in draws)
    batches = batches_of(draws, 5)
    assert sorted(number for numbers in batches for number in numbers) == list(range(12))
    for numbers in batches:
        assert len(numbers) <= 5
        assert len({draws[number]["components"] for number in numbers}) == 1


def test_a_member_with_its_own_settings_trains_as_if_all_had_them(logs, tmp_path):
    own = ({"learning_rate": 1e-4, "target_rate": 0.1}, {"learning_rate": 3e-3, "target_rate": 0.01})
    shared = plan_of("bc-all", logs, [LIMIT], seeds=2, chunk=10, options=OPTIONS | {"steps": 10})
    members = tuple(
        Member(*member[:3], tuple(settings.items())) for member, settings in zip(shared.members, own, strict=True)
    )
    mixed = replace(shared, members=members)
    outcome = directory.train(tmp_path, mixed, logs, "memory")
    assert plan_from(directory.description(tmp_path)) == mixed
    assert members[0].name == "seed0-alpha0.3-limit40-learning_rate0.0001-target_rate0.1"
    assert [policy.about["settings"] for policy in directory.load_policies(tmp_path).values()] == list(own)
    for index, settings in enumerate(own):
        alone = Trainer(replace(shared, settings=settings), logs)
        alone.advance()
        expected = jax.tree.map(lambda leaf, index=index: leaf[index], alone.outcome.states)
        found = jax.tree.map(lambda leaf, index=index: leaf[index], outcome.states)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_pruning_stops_the_worse_half_twice_and_says_so(pruned):
    out, ranked, _ = pruned
    by_state = {state: [found for found in ranked if found["state"] == state] for state in ("complete", "pruned")}
    # of the population of three one is left after two rungs; the fourth trial has nothing to be compared with
    assert (len(by_state["complete"]), len(by_state["pruned"])) == (2, 2)
    assert [found["state"] for found in ranked] == ["complete"] * 2 + ["pruned"] * 2
    assert {found["words"] for found in by_state["pruned"]} == {
        "pruned at step 10: number 3 of 3 by its estimate",
        "pruned at step 20: number 2 of 2 by its estimate",
    }
    rows = directory.read_metrics(out / "runs" / "batch-000")
    assert [sum(row["step"] == step for row in rows) for step in (10, 20, 30, 40)] == [3, 2, 1, 1]
    assert set(directory.failures(out / "runs" / "batch-000").values()) == {f["words"] for f in by_state["pruned"]}


def test_a_search_leaves_its_trials_its_summary_and_the_best_policy(pruned, logs):
    out, ranked, summary = pruned
    lines = list(csv.DictReader((out / "trials.csv").read_text().splitlines()))
    assert [line["trial"] for line in lines] == ["0", "1", "2", "3"]
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(summary))
    best = summary["best"]
    assert best == ranked[0]
    policy = load(out / "best")
    assert policy.about["alpha"] == best["alpha"]
    member = load(out / best["run"] / "policies" / best["member"])
    actions = [each.seed(0).predict(logs.observations[:3]) for each in (policy, member)]
    np.testing.assert_array_equal(*actions)
    told = Journal(out).trials()
    complete = [trial for trial in told if trial.state.name == "COMPLETE"]
    assert max(complete, key=lambda trial: trial.value).number == best["trial"]
    assert [trial.user_attrs["cost_high"] for trial in told] == [float(line["cost_high"]) for line in lines]


def test_a_search_that_was_stopped_ends_as_one_that_was_not(pruned, logs, tmp_path):
    straight, _, _ = pruned

    def stop_at(chosen):
        def progress(what, updates, total):
            if what == chosen:
                raise KeyboardInterrupt

        return progress

    for moment in ("batch-000, step 20", "batch-000, estimating", "batch-001, step 10"):
        with pytest.raises(KeyboardInterrupt):
            sweep(tmp_path, logs, "memory", LIMIT, prune=True, progress=stop_at(moment), **SEARCH)
    with (tmp_path / FILE).open("a") as journal:
        journal.write('{"op_code": 4, "cut sho')
    ranked = sweep(tmp_path, logs, "memory", LIMIT, prune=True, **SEARCH)
    write_results(tmp_path, ranked, {})
    assert (tmp_path / "trials.csv").read_bytes() == (straight / "trials.csv").read_bytes()


def test_other_settings_or_another_directory_are_refused(pruned, logs, tmp_path):
    out, _, _ = pruned
    with pytest.raises(UserError, match="started with another seed"):
        sweep(out, logs, "memory", LIMIT, prune=True, seed=1, **SEARCH)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no search"):
        sweep(tmp_path, logs, "memory", LIMIT, **SEARCH)


@pytest.mark.slow
def test_a_search_by_the_estimates_themselves(logs, tmp_path, monkeypatch):
    monkeypatch.setattr("corsdice.training.sweep.assessor_of", assessor_of)
    ranked = sweep(tmp_path, logs, "memory", LIMIT, prune=True, **SEARCH | {"trials": 2})
    assert [found["state"] for found in ranked] == ["complete", "pruned"]
    assert {found["verdict"] for found in ranked} <= {"meets", "does not meet", "cannot be told"}
    assert json.loads((tmp_path / "runs" / "batch-000" / "ope.json").read_text())["results"][1]["weights"]


def test_the_command_searches_and_prints_what_scripts_can_read(logs, tmp_path, capsys):
    file = tmp_path / "logs.npz"
    data.write(logs, file)
    small = ("--steps", "10", "--chunk", "10", "--widths", "8", "8", "--batch-size", "16", "--algorithm", "bc-all")
    asked = ["sweep", str(file), "--out", str(tmp_path / "out"), "--cost-limit", "40", "--trials", "2", *small]
    space = ["--space", "learning_rate=log:1e-4:1e-2", "components=choice:1"]
    assert main([*asked, *space, "--json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert {found["state"] for found in summary["trials"]} == {"complete"}
    assert all(found["components"] == 1 and 1e-4 <= found["learning_rate"] <= 1e-2 for found in summary["trials"])
    assert main([*asked, *space]) == 0
    assert "best first" in capsys.readouterr().out
    assert main([*asked, "--space", "depth=choice:1"]) == 2
    assert capsys.readouterr().err.startswith("corsdice: --space: bc-all has no 'depth' to search")
