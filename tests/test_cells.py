"""Results that are kept: found again for the same question, made anew for another."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from corsdice.errors import UserError
from corsdice.experiments.bench_dsrl_config import BenchDsrlConfig
from corsdice.experiments.calibration_config import CalibrationConfig
from corsdice.experiments.cells import answer, digest, kept, kept_file
from corsdice.experiments.configs import OpeTableConfig
from corsdice.experiments.d4rl_config import D4rlTableConfig
from corsdice.experiments.selection_config import SelectionConfig


def test_a_result_is_made_once_for_a_question_and_anew_for_another(tmp_path):
    made = []

    def make():
        made.append(len(made))
        return made[-1]

    path = tmp_path / "deep" / "cell.json"
    asked = {"steps": 3, "widths": (8, 8)}
    assert [kept(path, asked, make), kept(path, asked, make)] == [0, 0]
    assert kept(path, asked | {"steps": 4}, make) == 1
    assert answer(path, asked) is None
    path.write_text("{")
    with pytest.raises(UserError, match="is damaged: delete it"):
        kept(path, asked, make)


def test_a_file_is_made_again_when_its_content_or_the_question_has_changed(tmp_path):
    made = []

    def make(path):
        made.append(path)
        path.write_text("rows")

    path = tmp_path / "logs.csv"
    kept_file(path, {"episodes": 3}, make)
    kept_file(path, {"episodes": 3}, make)
    assert len(made) == 1
    kept_file(path, {"episodes": 4}, make)
    path.write_text("changed")
    kept_file(path, {"episodes": 4}, make)
    assert len(made) == 3
    assert path.read_text() == "rows"


WHERE = {"out", "workers", "executor", "processes", "address"}
"""Where things are computed and kept."""
SHOWN = {"tasks", "limits", "tight", "algorithms", "published", "cell_members", "repetitions", "estimators"}
"""What is named in the path of a result, or only shown."""


def ope_asked(config):
    parts = config.trained(), config.estimated(), config.made("hopper"), config.made("point-run"), config.truth_episodes
    return dict(enumerate(parts))


@pytest.mark.parametrize(
    ("config", "asked", "beside"),
    [
        (OpeTableConfig(), ope_asked, {"data"}),
        (CalibrationConfig(), CalibrationConfig.asked, {"data", "logged_episodes"}),  # in the hash of the logs
        (SelectionConfig(), SelectionConfig.asked, set()),
        (BenchDsrlConfig(tasks=("point-run",)), lambda c: c.asked("point-run", "corsdice"), {"data"}),
        (D4rlTableConfig(), lambda c: c.asked("hopper-medium", "odice"), {"data"}),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "out") else "",
)
def test_every_option_that_matters_is_part_of_the_question(config, asked, beside):
    for field in fields(config):
        if field.name in WHERE | SHOWN | beside:
            continue
        value = getattr(config, field.name)
        changed = replace(config, **{field.name: OTHERS.get(field.name) or _other(value)})
        assert digest(asked(changed)) != digest(asked(config)), field.name


OTHERS = {"alphas": (0.5,), "beta": 0.25, "correction": "ratio"}


def _other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return value[:-1]
    return value + 1


def test_logs_are_known_by_their_content(tmp_path):
    def asked(path: Path):
        config = BenchDsrlConfig(tasks=("point-run",), data=(f"point-run={path}",))
        return config.asked("point-run", "corsdice")

    one, other = tmp_path / "one.hdf5", tmp_path / "other.hdf5"
    one.write_text("a")
    other.write_text("a")
    assert asked(one) == asked(other)
    one.write_text("b")
    assert asked(one) != asked(other)
    with pytest.raises(UserError, match="no file"):
        asked(tmp_path / "nowhere.hdf5")
