"""What a file says of itself, by whomever it was written."""

import json
import pickle
import zipfile

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from small_datasets import assert_same

from corsdice import __version__
from corsdice.cli import main
from corsdice.data import check, provenance, read, write
from corsdice.data.dsrl import dsrl_task
from corsdice.data.provenance import LARGEST
from corsdice.errors import UserError

ABOUT = {"source": "a clinic in Zürich", "seeds": [0, 1], "versions": {"mujoco": "2.3.3"}, "licence": None, "γ": 0.99}
HOLD_IT = ("hdf5", "h5", "npz", "parquet")


@pytest.mark.parametrize("suffix", HOLD_IT)
def test_it_is_read_as_it_was_written(dataset, tmp_path, suffix):
    path = tmp_path / f"logs.{suffix}"
    write(dataset, path, ABOUT)
    assert provenance(path) == ABOUT
    assert provenance(str(path)) == ABOUT
    assert_same(check(read(path)), dataset)
    write(dataset, path)
    assert provenance(path) is None


def test_csv_has_no_place_for_it(dataset, tmp_path):
    write(dataset, tmp_path / "logs.csv", ABOUT)
    assert provenance(tmp_path / "logs.csv") is None
    assert_same(read(tmp_path / "logs.csv"), dataset)


def test_others_can_read_it_too(dataset, tmp_path):
    for suffix in HOLD_IT:
        write(dataset, tmp_path / f"logs.{suffix}", ABOUT)
    with h5py.File(tmp_path / "logs.hdf5") as file:
        assert json.loads(file.attrs["provenance"]) == ABOUT
    with np.load(tmp_path / "logs.npz", allow_pickle=False) as file:
        assert json.loads(file["provenance"].item()) == ABOUT
    schema = pyarrow.parquet.read_schema(tmp_path / "logs.parquet")
    assert json.loads(schema.metadata[b"provenance"]) == ABOUT


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"path": object()}, "what JSON can hold"),
        ({"cost": float("nan")}, "what JSON can hold"),
        ({"text": "x" * LARGEST}, "say it in 65,536"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(dataset, tmp_path, about, says):
    with pytest.raises(UserError, match=says) as refusal:
        write(dataset, tmp_path / "logs.npz", about)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_called_so(tmp_path):
    with pytest.raises(UserError, match="no file"):
        provenance(tmp_path / "nothing.npz")


@pytest.mark.parametrize("suffix", [*HOLD_IT, "csv", "txt"])
def test_garbage_has_none(tmp_path, suffix):
    path = tmp_path / f"garbage.{suffix}"
    path.write_bytes(b"\x00\xff\x13garbage" * 50)
    assert provenance(path) is None


HOSTILE_TEXTS = {
    "not JSON": "recorded in 2019",
    "empty": "",
    "a list": '["source"]',
    "a text": '"source"',
    "null": "null",
    "not a number": '{"seed": NaN}',
    "infinite": '{"seed": 1e999}',
    "too many digits": '{"seed": 1' + "0" * 5000 + "}",
    "too deep": '{"a":' * 10_000 + "1" + "}" * 10_000,
    "too deep, unclosed": "[" * 50_000,
    "huge": json.dumps({"text": "x" * LARGEST}),
    "huge once written again": '{"text": "' + "é" * (LARGEST // 3) + '"}',
    "not UTF-8": b'{"text": "\xff\xfe"}',
}


@pytest.mark.parametrize("kind", HOSTILE_TEXTS)
@pytest.mark.parametrize("suffix", ["hdf5", "npz", "parquet"])
def test_a_hostile_text_is_no_provenance_and_the_data_are_still_read(dataset, tmp_path, suffix, kind):
    path = tmp_path / f"logs.{suffix}"
    text = HOSTILE_TEXTS[kind]
    raw = text if isinstance(text, bytes) else text.encode()
    write(dataset, path)
    if suffix == "hdf5":
        with h5py.File(path, "a") as file:
            file.attrs.create("provenance", raw, dtype=h5py.string_dtype())
    elif suffix == "npz":
        np.savez(path, **dataset._asdict(), provenance=np.array(raw))
    else:
        table = pyarrow.parquet.read_table(path).replace_schema_metadata({"provenance": raw})
        pyarrow.parquet.write_table(table, path)
    about = provenance(path)
    assert about is None or (kind, suffix) == ("not UTF-8", "hdf5")  # h5py escapes it, and so does JSON
    assert_same(read(path), dataset)
    assert main(["data", "convert", str(path), str(tmp_path / "again.npz")]) == 0


HOSTILE_ATTRIBUTES = {
    "a number": 3.5,
    "numbers": np.arange(1_000),
    "texts": np.array([b"{}", b"{}"]),
    "nothing": h5py.Empty("f"),
    "a text of nothing": h5py.Empty(h5py.string_dtype()),
    "bytes without a meaning": np.void(b"{}"),
    "fields": np.array((1, b"{}"), dtype=[("a", int), ("b", "S2")]),
    "too long": np.bytes_(b'{"a": "' + b"x" * LARGEST + b'"}'),
}


@pytest.mark.parametrize("kind", HOSTILE_ATTRIBUTES)
def test_an_hdf5_attribute_of_another_type_is_no_provenance(dataset, tmp_path, kind):
    path = tmp_path / "logs.hdf5"
    with h5py.File(path, "w", libver="latest") as file:  # which has attributes of any size
        for name, array in dataset._asdict().items():
            file[name] = array
        file.attrs["provenance"] = HOSTILE_ATTRIBUTES[kind]
    assert provenance(path) is None
    assert_same(read(path), dataset)


def test_an_hdf5_reference_is_no_provenance_and_a_text_of_fixed_length_is(tmp_path):
    path = tmp_path / "logs.hdf5"
    with h5py.File(path, "w") as file:
        file.attrs["provenance"] = file.ref
    assert provenance(path) is None
    with h5py.File(path, "w") as file:
        file.attrs["provenance"] = np.bytes_(b'{"seed": 1}')
    assert provenance(path) == {"seed": 1}


def npy(descr, shape, content=b""):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_nothing_in_an_npz_is_unpickled_or_given_the_room_it_claims(tmp_path):
    path, sprung = tmp_path / "logs.npz", tmp_path / "sprung"
    members = {
        "pickled": npy("|O", (), pickle.dumps(Trap(str(sprung)))),
        "a terabyte": npy("|S1000000000000", ()),
        "many": npy("|S10", (10**12,)),
        "empty": b"",
        "cut short": npy("|S10", ())[:9],
        "a bomb": npy("|S10000007", (), b'{"a": "' + bytes(10_000_000)),
    }
    for content in members.values():
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("provenance.npy", content)
        assert provenance(path) is None
    assert not sprung.exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_damaged_member_is_no_provenance(tmp_path, method):
    path = tmp_path / "logs.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("provenance.npy", npy("|S90", (), json.dumps({"text": "x" * 80}).encode()))
    assert provenance(path) == {"text": "x" * 80}
    raw = bytearray(path.read_bytes())
    raw[44:70] = bytes(26)  # after the name of the member
    path.write_bytes(raw)
    assert provenance(path) is None


def test_convert_carries_it_and_check_shows_it(dataset, tmp_path, capsys):
    first, last = tmp_path / "logs.npz", tmp_path / "last.parquet"
    write(dataset, first, ABOUT | {"steps": [{"filter": "thin", "seed": 3}, "by hand"]})
    for source, target in ((first, tmp_path / "logs.h5"), (tmp_path / "logs.h5", last)):
        assert main(["data", "convert", str(source), str(target)]) == 0
    assert provenance(last) == provenance(first)
    capsys.readouterr()
    assert main(["data", "check", str(last)]) == 0
    shown = capsys.readouterr().out
    assert "provenance, source: a clinic in Zürich\n" in shown
    assert 'provenance, versions: {"mujoco": "2.3.3"}\n' in shown
    assert 'provenance, steps: {"filter": "thin", "seed": 3}\nprovenance, steps: by hand\n' in shown
    assert main(["data", "check", str(last), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == provenance(first)


def test_where_there_is_none_nothing_is_said(dataset, tmp_path, capsys):
    write(dataset, tmp_path / "logs.npz")
    assert main(["data", "check", str(tmp_path / "logs.npz")]) == 0
    assert "provenance" not in capsys.readouterr().out
    assert main(["data", "check", str(tmp_path / "logs.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] is None
    assert main(["data", "convert", str(tmp_path / "logs.npz"), str(tmp_path / "logs.h5")]) == 0
    assert provenance(tmp_path / "logs.h5") is None


def test_a_terminal_is_not_told_what_to_do(dataset, tmp_path, capsys):
    hostile = {"\x1b[2J": "\x1b]0;title\x07\ndone", "long": "x" * 10_000, "steps": {"\x9b": "\x9b31m"}}
    write(dataset, tmp_path / "logs.npz", hostile)
    assert main(["data", "check", str(tmp_path / "logs.npz")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("provenance")]
    assert len(lines) == 3
    assert all(line.isprintable() and len(line) <= 200 for line in lines)


def test_a_filter_follows_steps_of_any_kind(dataset, tmp_path):
    source, target = tmp_path / "logs.npz", tmp_path / "less.npz"
    for steps in ("by hand", {"filter": "by hand"}, 3):
        write(dataset, source, {"steps": steps})
        assert main(["data", "filter", str(source), str(target), "--thin", "2", "--overwrite"]) == 0
        before, thin = provenance(target)["steps"]
        assert before == steps
        assert thin["corsdice"] == __version__


def test_logs_made_here_say_so(tmp_path):
    path = tmp_path / "logs.hdf5"
    assert main(["data", "make", "point-run", str(path), "--episodes", "3", "--seed", "5"]) == 0
    about = provenance(path)
    assert about["source"] == "made by corsdice"
    assert about["settings"] == {"task": "point-run", "episodes": 3, "seed": 5}
    assert about["versions"]["corsdice"] == __version__
    assert {"python", "jax", "numpy"} <= set(about["versions"])
    assert about["licence"] == "MIT"


def test_show_tells_what_the_file_of_a_task_says(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    assert main(["data", "show", "BallRun", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] is None
    write(dataset, tmp_path / dsrl_task("BallRun").dataset_file, ABOUT)
    assert provenance("dsrl:BallRun") == ABOUT
    assert main(["data", "show", "BallRun"]) == 0
    assert "provenance, source: a clinic in Zürich\n" in capsys.readouterr().out
    assert main(["data", "show", "BallRun", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == ABOUT
