import csv
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from corsdice import __version__, files
from corsdice.cli import main
from corsdice.experiments import constrained_mdp, four_rooms, random_mdp
from corsdice.experiments.configs import ConstrainedMDPConfig, FourRoomsConfig, RandomMDPConfig

SMALL = ("--states", "8", "--trajectories", "5", "--horizon", "20", "--actions", "3", "--successors", "3")


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def in_a_process(*arguments, **options):
    command = [sys.executable, "-m", "corsdice", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_help_answers_without_importing_jax():
    script = "import sys; from corsdice.cli import main\ntry: main(['--help'])\nfinally: print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "reproduce" in done.stdout
    assert done.stdout.endswith("False\n")


@pytest.mark.parametrize("command", ["random-mdp", "four-rooms", "constrained-mdp"])
def test_every_command_has_help_with_defaults(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--out" in shown
    assert f"(default: out/{command})" in " ".join(shown.replace("│", " ").split())


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"corsdice {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Expected one of {data, train, ope, select, evaluate, report, sweep, demo, doctor, reproduce, bench}"),
        (
            ("reproduce",),
            "{random-mdp, four-rooms, constrained-mdp, ope, calibration, d4rl, selection, actors, dsrl-advanced}",
        ),
        (("reproduce", "random-mdpp"), "Available subcommands: random-mdp"),
        (("reproduce", "random-mdp", "--runs", "many"), "--runs"),
        (("reproduce", "random-mdp", "--runs", "0"), "--runs must be at least 1, got 0"),
        (("reproduce", "random-mdp", "--discount", "1"), "--discount must be in [0, 1), got 1"),
        (("reproduce", "random-mdp", "--unsen", "uniform"), "Perhaps you meant: --unseen"),
        (("reproduce", "random-mdp", "--divergence", "tv"), "'chi2', 'soft-chi2', 'kl'"),
        (("reproduce", "random-mdp", "--alphas", "1"), "--alphas and --betas must have the same length"),
        (("reproduce", "random-mdp", "--out", "/dev/null/here"), "choose another --out"),
        (("reproduce", "constrained-mdp", "--limits", "-1"), "--limits must be positive"),
        (("bench", "tabular", "--states", "1"), "--states must be at least 5"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments, says, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("corsdice: ")
    assert captured.err.count("\n") == 1
    assert says in captured.err


def test_a_mistake_is_one_line_on_a_terminal_without_unicode():
    arguments = ("reproduce", "random-mdp", "--runs", "0")
    done = in_a_process(*arguments, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    expected = "corsdice: --runs must be at least 1, got 0. See: corsdice reproduce random-mdp --help\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_debug_shows_the_traceback():
    done = in_a_process("reproduce", "random-mdp", "--runs", "0", "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_random_mdp_writes_what_it_promises(tmp_path, capsys):
    assert main(["reproduce", "random-mdp", "--runs", "3", "--out", str(tmp_path), *SMALL]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""  # no progress bar where there is no terminal
    assert "holds: OptiDICE and Extraction" in shown.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "results.csv", "summary.json"]
    rows = read(tmp_path / "results.csv")
    assert tuple(rows[0]) == random_mdp.COLUMNS
    assert len(rows) == 3 * 7 * 6
    assert {row["status"] for row in rows} == {"converged"}
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["runs"] == 3
    assert summary["not_converged"] == []
    assert summary["config"]["states"] == 8

    means = {(row["method"], row["parameter"]): row["flow_violation"] for row in summary["table"]}
    flows = [float(r["flow_violation"]) for r in rows if (r["method"], float(r["parameter"])) == ("ODICE", 0.99)]
    assert means["ODICE", 0.99] == pytest.approx(sum(flows) / 3)


@pytest.mark.slow
def test_fewer_runs_are_the_first_of_more_and_protocol_options_work(tmp_path):
    base = RandomMDPConfig(
        runs=2, out=tmp_path / "two", states=6, actions=2, successors=2, alphas=(0.1,), betas=(0.5,), horizon=10
    )
    random_mdp.run(base)
    random_mdp.run(replace(base, runs=1, out=tmp_path / "one"))
    first, both = read(tmp_path / "one" / "results.csv"), read(tmp_path / "two" / "results.csv")
    assert first == [row for row in both if row["run"] == "0"]
    other = replace(
        base, unseen="absorbing", behaviour="empirical", goal="ends", divergence="kl", out=tmp_path / "other"
    )
    summary = random_mdp.run(other)
    assert [claim["holds"] for claim in summary["claims"][:2]] == [True, True]


def test_an_interrupt_keeps_the_runs_that_are_done(tmp_path, monkeypatch, capsys):
    config = RandomMDPConfig(
        runs=4, out=tmp_path, states=6, actions=2, successors=2, alphas=(0.1,), betas=(0.5,), horizon=10
    )
    monkeypatch.setattr(random_mdp, "CHUNK", 2)
    seen = []
    real = random_mdp.jax.block_until_ready

    def interrupted(value):
        seen.append(value)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(value)

    monkeypatch.setattr(random_mdp.jax, "block_until_ready", interrupted)
    assert random_mdp.run(config)["runs"] == 2
    assert "keeping the 2 runs that are done" in capsys.readouterr().out
    assert {row["run"] for row in read(tmp_path / "results.csv")} == {"0", "1"}


def test_four_rooms(tmp_path):
    summary = four_rooms.run(FourRoomsConfig(out=tmp_path))
    assert summary["methods"]["OptiDICE"]["empty_states"] > 50
    assert summary["methods"]["SemiDICE"]["empty_states"] == 0
    rows = read(tmp_path / "results.csv")
    assert len(rows) == 2 * 104
    assert sum(row["empty"] == "True" for row in rows) == summary["methods"]["OptiDICE"]["empty_states"]
    assert (tmp_path / "figure.png").exists()


@pytest.mark.slow
def test_constrained_mdp_on_random_problems(tmp_path):
    config = ConstrainedMDPConfig(runs=3, out=tmp_path, problems=("random",), limits=(0.05, 0.2))
    summary = constrained_mdp.run(config)
    assert summary["claims"][0]["holds"]
    assert next(row for row in summary["table"] if row["method"] == "naive SemiDICE")["worst_estimate_error"] > 0.01
    assert summary["not_converged"] == []
    rows = read(tmp_path / "results.csv")
    assert len(rows) == 3 * 2 * 4
    for row in rows:
        best = next(
            float(r["model_return"])
            for r in rows
            if (r["run"], r["limit"], r["method"]) == (row["run"], row["limit"], "LP optimum")
        )
        if row["method"] in ("CORSDICE", "COptiDICE"):
            assert float(row["model_cost"]) <= float(row["limit"]) + 1e-6
            assert float(row["model_return"]) <= best + 1e-8


def test_constrained_mdp_on_sepsis_with_chosen_methods(tmp_path):
    """And the most interesting thing it shows: met in the model of few patients, the limit is broken in truth."""
    config = ConstrainedMDPConfig(
        out=tmp_path, problems=("sepsis",), methods=("corsdice",), sepsis_limits=(0.035,), patients=2_000
    )
    summary = constrained_mdp.run(config)
    assert [claim["holds"] for claim in summary["claims"]] == [True]
    assert summary["not_converged"] == []
    assert summary["table"][0]["truly_unsafe"] == 1


@pytest.mark.slow
def test_constrained_mdp_on_sepsis(tmp_path):
    config = ConstrainedMDPConfig(out=tmp_path, problems=("sepsis",), sepsis_limits=(0.035,))
    summary = constrained_mdp.run(config)
    assert summary["claims"][0]["holds"]
    assert summary["not_converged"] == []


@pytest.mark.slow
def test_figure_1_in_full(tmp_path):
    summary = random_mdp.run(RandomMDPConfig(out=tmp_path))
    assert all(claim["holds"] for claim in summary["claims"])
    assert summary["not_converged"] == []


def test_bench_measures_each_size_in_a_process_of_its_own():
    done = in_a_process("bench", "tabular", "--states", "10", "--repeats", "1", env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "peak memory" in done.stdout


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "results.csv"
    files.write_csv(target, ("a",), [(1,)])

    def broken():
        yield (2,)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.write_csv(target, ("a",), broken())
    assert target.read_text().split() == ["a", "1"]
    assert [path.name for path in tmp_path.iterdir()] == ["results.csv"]
