import csv
import json
import warnings

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer
from small_datasets import assert_same, make_arrays

from corsdice.cli import main
from corsdice.data import Columns, check, dataset_from, read, write
from corsdice.errors import UserError

FORMATS = ("hdf5", "h5", "npz", "parquet", "csv")


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_written_is_read_again(dataset, tmp_path, suffix):
    path = tmp_path / f"logs.{suffix}"
    write(dataset, path)
    assert_same(check(read(path)), dataset)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_dsrl_files_with_columns_of_one_number(arrays, tmp_path):
    with h5py.File(tmp_path / "dsrl.hdf5", "w") as file:
        for name, array in arrays.items():
            wide = array[:, None] if array.ndim == 1 else array
            file[name] = wide.astype(np.float64 if wide.dtype != bool else bool)
        file["snapshot_iter"] = np.arange(12)
    assert_same(read(tmp_path / "dsrl.hdf5"), dataset_from(arrays))


def test_a_table_with_names_of_its_own(arrays, tmp_path):
    """Logs as a clinic or a driver would have them: no timeouts, no next observations, episodes by number."""
    path = tmp_path / "patients.csv"
    episode = np.repeat([7, 8, 9], [5, 3, 4])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "pulse", "pressure", "age", "dose", "fluid", "gain", "harm", "died"])
        for i in range(12):
            numbers = [*arrays["observations"][i], *arrays["actions"][i], arrays["rewards"][i], arrays["costs"][i]]
            writer.writerow([episode[i], *map(repr, map(float, numbers)), int(arrays["terminals"][i])])
    columns = Columns(
        observations=("pulse", "pressure", "age"),
        actions=("dose", "fluid"),
        reward="gain",
        cost="harm",
        terminal="died",
        episode="patient",
    )
    del arrays["next_observations"]
    assert_same(check(read(path, columns)), dataset_from(arrays))


def test_tables_say_which_column_is_wrong(dataset, tmp_path):
    path = tmp_path / "logs.csv"
    write(dataset, path)
    with pytest.raises(UserError, match="no column 'price': the table has observation_0"):
        read(path, Columns(cost="price"))
    lines = path.read_text().splitlines()
    lines[3] = ",".join(["", *lines[3].split(",")[1:]])
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match="column 'observation_0', row 2, is empty"):
        read(path)
    lines[3] = ",".join(["high", *lines[3].split(",")[1:]])
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match="column 'observation_0' holds string values"):
        read(path)


def test_ten_columns_are_in_the_order_of_their_numbers(tmp_path):
    dataset = dataset_from(make_arrays(observation=(12,)))
    write(dataset, tmp_path / "logs.parquet")
    assert_same(read(tmp_path / "logs.parquet"), dataset)


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    np.savez(tmp_path / "trap.npz", rewards=np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects, which are never loaded"):
        read(tmp_path / "trap.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", FORMATS)
def test_garbage_is_called_so(tmp_path, suffix):
    path = tmp_path / f"garbage.{suffix}"
    path.write_bytes(b"\x00\xff\x13garbage" * 50)
    with pytest.raises(UserError) as refusal:
        read(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("suffix", ["hdf5", "npz", "parquet"])
def test_a_truncated_file_is_called_so(dataset, tmp_path, suffix):
    path = tmp_path / f"logs.{suffix}"
    write(dataset, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"logs\."):
        read(path)


def test_names_that_say_nothing(dataset, tmp_path):
    with pytest.raises(UserError, match="no file"):
        read(tmp_path / "nothing.npz")
    with pytest.raises(UserError, match="is not a file"):
        read(tmp_path)
    (tmp_path / "logs.txt").touch()
    with pytest.raises(UserError, match=r"cannot tell the format of logs.txt: use one of .hdf5"):
        read(tmp_path / "logs.txt")
    with pytest.raises(UserError, match="cannot tell the format"):
        write(dataset, tmp_path / "logs.txt")
    with pytest.raises(UserError, match="no directory"):
        write(dataset, tmp_path / "nowhere" / "logs.npz")


def test_minari_episodes_with_their_costs(arrays, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = dataset_from(arrays)
    buffers = []
    for index, (start, stop) in enumerate(zip(*dataset.episodes, strict=True)):
        rows = slice(start, stop)
        path = np.concatenate([dataset.observations[rows], dataset.next_observations[stop - 1 : stop]])
        buffers.append(
            EpisodeBuffer(
                id=index,
                observations=list(path),
                actions=list(dataset.actions[rows]),
                rewards=list(dataset.rewards[rows]),
                terminations=list(dataset.terminals[rows]),
                truncations=list(dataset.timeouts[rows]),
                infos={"cost": [0.0, *dataset.costs[rows].tolist()]},
            )
        )
    box = gymnasium.spaces.Box
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # advice on the metadata of published datasets
        spaces = {"action_space": box(-1, 1, (2,)), "observation_space": box(-np.inf, np.inf, (3,))}
        minari.create_dataset_from_buffers("corsdice/test-v0", buffers, **spaces)
    assert_same(check(read("minari:corsdice/test-v0")), dataset)
    with pytest.raises(UserError, match="no local Minari dataset"):
        read("minari:corsdice/none-v0")


def test_check_and_convert_by_command(dataset, tmp_path, capsys):
    source, target = tmp_path / "logs.npz", tmp_path / "logs.parquet"
    write(dataset, source)
    assert main(["data", "convert", str(source), str(target)]) == 0
    assert "Wrote 12 transitions in 3 episodes" in capsys.readouterr().out
    assert_same(read(target), dataset)
    assert main(["data", "convert", str(source), str(target)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["data", "check", str(target), "--limits", "1", "2"]) == 0
    shown = capsys.readouterr().out
    assert "12 transitions in 3 episodes, 1 terminated and 2 timed out" in shown
    assert "cost <= 1" in shown
    assert main(["data", "check", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3
    assert main(["data", "check", str(target), "--action-bounds", "-0.1", "0.1"]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith("corsdice: actions, row ")
    assert refusal.count("\n") == 1
