"""A run on disk: started, resumed, read. See `run` for what the directory holds."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from corsdice import __version__, files
from corsdice.data.dataset import Dataset
from corsdice.errors import UserError
from corsdice.policy import Policy, load
from corsdice.training.run import Outcome, Plan, Trainer

FORMAT = 1
DESCRIPTION, METRICS, CHECKPOINT, POLICIES = "run.json", "metrics.jsonl", "checkpoint.safetensors", "policies"
Progress = Callable[[int, list[dict[str, Any]]], None]
"""Called after each chunk with the step and the chunk's metrics."""


def train(directory: Path, plan: Plan, dataset: Dataset, source: str, progress: Progress | None = None) -> Outcome:
    """Trains into a directory, from where it was left if it holds the same plan on the same data.

    Ctrl-C ends it after the current chunk is dropped; everything up to the last whole chunk is on disk.
    """
    trainer = Trainer(plan, dataset, source)
    content = _description(plan, trainer.data)
    _start_or_resume(directory, content, trainer)
    with _tensorboard(directory, trainer.outcome.step) as board, _metrics_file(directory) as metrics:
        while not trainer.outcome.done:
            rows = trainer.advance()
            for row in rows:
                metrics.write(json.dumps(row) + "\n")
                _to_board(board, plan, row)
            metrics.flush()
            os.fsync(metrics.fileno())
            _save(directory, trainer.outcome)
            if progress:
                progress(trainer.outcome.step, rows)
            if len(trainer.outcome.failures) == len(plan.members):
                break
    save_policies(directory, trainer.outcome)
    return trainer.outcome


def resume_plan(directory: Path) -> dict[str, Any]:
    """What the directory says it was made for."""
    path = directory / DESCRIPTION
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{directory} is not a run: cannot read {path.name} ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict) or content.get("corsdice_run") != FORMAT:
        raise UserError(f"{path} was not written by this version of corsdice")
    return content


def save_policies(directory: Path, outcome: Outcome) -> list[Path]:
    return [
        outcome.policy(index).save(directory / POLICIES / member.name)
        for index, member in enumerate(outcome.plan.members)
    ]


def load_policies(directory: Path) -> list[Policy]:
    """The policies of all members, in their order."""
    content = resume_plan(directory)
    return [load(directory / POLICIES / member["name"]) for member in content["members"]]


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    path = directory / METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _description(plan: Plan, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "corsdice_run": FORMAT,
        "algorithm": plan.algorithm,
        "config": dataclasses.asdict(plan.config) | {"widths": list(plan.config.widths)},
        "settings": plan.settings,
        "members": [
            {"name": m.name, "seed": m.seed, "alpha": m.alpha, "cost_limit": m.limit.episode, "limit": str(m.limit)}
            for m in plan.members
        ],
        "horizon": plan.horizon,
        "discount": plan.discount,
        "holdout": plan.holdout,
        "chunk": plan.chunk,
        "mode": plan.mode,
        "data": data,
        "versions": {"corsdice": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")},
    }


def _start_or_resume(directory: Path, content: dict[str, Any], trainer: Trainer) -> None:
    files.output_directory(directory)
    if not (directory / DESCRIPTION).exists():
        if any(directory.iterdir()):
            raise UserError(f"{directory} is not empty and holds no run: choose another --out")
        files.write_json(directory / DESCRIPTION, content)
        return
    found = resume_plan(directory)
    for key, value in json.loads(json.dumps(content)).items():
        if key == "data":
            if found[key]["sha256"] != value["sha256"]:
                raise UserError(f"{directory} was trained on other data ({found[key]['source']}): choose another --out")
        elif found.get(key) != value:
            raise UserError(
                f"{directory} was started with another {_difference(key, found.get(key), value)}: choose another --out"
            )
    if (directory / CHECKPOINT).exists():
        _restore(directory, trainer)


def _difference(key: str, old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                return f"{name} ({old.get(name)}, now {new.get(name)})"
    return key if isinstance(old, list) else f"{key} ({old}, now {new})"


def _save(directory: Path, outcome: Outcome) -> None:
    metadata = {"step": str(outcome.step), "failures": json.dumps(outcome.failures)}
    files.write_tensors(directory / CHECKPOINT, outcome.states, metadata)


def _restore(directory: Path, trainer: Trainer) -> None:
    path = directory / CHECKPOINT
    metadata = files.read_tensors_metadata(path)
    step = int(metadata["step"])
    failures = {int(index): reason for index, reason in json.loads(metadata["failures"]).items()}
    states = jax.tree.map(jax.numpy.asarray, files.read_tensors(path, trainer.outcome.states))
    trainer.outcome = trainer.outcome._replace(step=step, states=states, failures=failures)
    known = [row for row in read_metrics_lenient(directory) if row["step"] <= step]
    with files.atomic(directory / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in known))


def read_metrics_lenient(directory: Path) -> list[dict[str, Any]]:
    """The metrics up to a line that a kill has cut short."""
    rows: list[dict[str, Any]] = []
    path = directory / METRICS
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


@contextmanager
def _metrics_file(directory: Path) -> Iterator[Any]:
    with (directory / METRICS).open("a") as file:
        yield file


@contextmanager
def _tensorboard(directory: Path, step: int) -> Iterator[Any]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(directory / "tensorboard"), purge_step=step)
    try:
        yield writer
    finally:
        writer.close()


def _to_board(board: Any, plan: Plan, row: dict[str, Any]) -> None:
    name = plan.members[row["member"]].name
    for metric, value in row.items():
        if metric not in ("step", "member"):
            board.add_scalar(f"{metric}/{name}", value, row["step"])
