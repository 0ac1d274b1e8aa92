"""A run on disk: everything that is needed to look at it, to resume it and to use what it has learned.

    run.json                what was asked for: settings, members, data and its hash, versions
    metrics.jsonl           one line for each chunk and member
    tensorboard/            the same, for TensorBoard
    checkpoint.safetensors  the whole state after the last chunk, and its step
    policies/               the policy of each member, or of each limit of a family, as safetensors + JSON
    policies/step-NNNNNN/   those of earlier steps, where the plan keeps some
    family.safetensors      of a family: all its policies, for any limit; family.json has its frontier

A chunk ends with its metrics appended and then the checkpoint replaced; a kill between the two leaves metrics that the
checkpoint does not know, which a resumed run drops. Draws depend on (seed, step) alone, so a resumed run ends
bit-identical to one that was never stopped.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from corsdice import __version__, files
from corsdice.algorithms import by_name
from corsdice.data.dataset import Dataset
from corsdice.errors import UserError
from corsdice.policy import Policy, load
from corsdice.policy_family import PolicyFamily, load_family
from corsdice.training.run import Outcome, Plan, Trainer, blank_outcome, plan_from
from corsdice.training.ship import Shipped

FORMAT = 1
DESCRIPTION, METRICS, CHECKPOINT, POLICIES = "run.json", "metrics.jsonl", "checkpoint.safetensors", "policies"
ESTIMATES, EVALUATION, REPORT = "ope.json", "evaluation.json", "report.html"
FAMILY = "family"
Progress = Callable[[int, list[dict[str, Any]], int], None]
"""Called after each chunk with the step, the chunk's metrics and how many steps are new."""
Prune = Callable[[Outcome, int], dict[int, str]]
"""Called after each chunk with where the run stands and at which step it stood before: which members end, and why."""


class Stopped(UserError):
    """A person has stopped the run; nothing is lost but a chunk."""


def train(
    directory: Path,
    plan: Plan,
    dataset: Dataset,
    source: str,
    progress: Progress | None = None,
    prune: Prune | None = None,
) -> Outcome:
    """Trains into a directory, from where it was left if it holds the same plan on the same data.

    Ctrl-C ends it after the current chunk is dropped; everything up to the last whole chunk is on disk.
    """
    trainer = Trainer(plan, dataset, source)
    content = _description(plan, trainer.data)
    _start_or_resume(directory, content, trainer)
    with _tensorboard(directory, trainer.outcome.step) as board, (directory / METRICS).open("a") as metrics:
        if progress:
            progress(trainer.outcome.step, [], trainer.outcome.step)
        while not trainer.outcome.done:
            before = trainer.outcome.step
            rows = trainer.advance()
            for row in rows:
                metrics.write(json.dumps(row) + "\n")
                _to_board(board, plan, row)
            metrics.flush()
            os.fsync(metrics.fileno())
            if prune and not trainer.outcome.done:
                trainer.stop(prune(trainer.outcome, before))
            if _keeps(trainer.outcome, before) and not by_name(plan.algorithm).is_family:
                _save_members(directory, trainer.outcome, f"step-{trainer.outcome.step:06d}")
            _save(directory, trainer.outcome)
            if progress:
                progress(trainer.outcome.step, rows, trainer.outcome.step - before)
    if not by_name(plan.algorithm).is_family:
        _save_members(directory, trainer.outcome)
    elif not (directory / f"{FAMILY}.json").exists():
        trainer.outcome.family().save(directory / FAMILY)
    return trainer.outcome


def description(directory: Path) -> dict[str, Any]:
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
    return {"keep": 1} | content  # runs of old do not say it


def load_outcome(directory: Path, like: Dataset) -> Outcome:
    """Where the run stands, from its checkpoint; `like` tells the shapes of its data."""
    content = description(directory)
    outcome = blank_outcome(plan_from(content), like, content["data"])
    if by_name(outcome.plan.algorithm).is_family:
        units = load_family(directory / FAMILY).units
    else:
        units = load(directory / POLICIES / outcome.plan.members[0].name).params.units
    return _restored(directory, outcome._replace(units=units))


def failures(directory: Path) -> dict[int, str]:
    """By member: when it stopped and why."""
    path = directory / CHECKPOINT
    return _failures(files.read_tensors_metadata(path)) if path.exists() else {}


def _save_members(directory: Path, outcome: Outcome, folder: str = "") -> None:
    for index, member in enumerate(outcome.plan.members):
        outcome.policy(index).save(directory / POLICIES / folder / member.name)


def save_shipped(directory: Path, policies: Sequence[Shipped]) -> None:
    """The policies of a family that limits have chosen, in place of those of earlier limits."""
    for path in (directory / POLICIES).glob("*limit*.*"):
        path.unlink()
    for each in policies:
        each.policy.save(directory / POLICIES / each.name)


def load_policies(directory: Path) -> dict[str, Policy]:
    """The policies of a run by name: of all members in their order, or of a family by limit and member."""
    members = description(directory)["members"]
    if all("cost_limit" in member for member in members):
        return {member["name"]: load(directory / POLICIES / member["name"]) for member in members}
    found = {path.stem: load(path) for path in sorted((directory / POLICIES).glob("*.json"))}
    return dict(sorted(found.items(), key=lambda item: (item[1].about["cost_limit"], item[1].about["member"])))


def read_family(directory: Path) -> PolicyFamily:
    """The family of a run, with its frontier."""
    if not (directory / f"{FAMILY}.json").exists():
        description(directory)  # says so if this is no run at all
        raise UserError(f"{directory} holds no family: it was trained for one limit, or has not ended")
    family = load_family(directory / FAMILY)
    if not family.frontier.points:
        raise UserError(f"{directory} has no frontier yet: run the same `corsdice train` again to go on")
    return family


def kept_policies(directory: Path) -> list[Path]:
    """Where all policies of a run that has ended are, from the first kept step to the last."""
    names = [member["name"] for member in description(directory)["members"]]
    steps = sorted((directory / POLICIES).glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))
    return [folder / name for folder in (*steps, directory / POLICIES) for name in names]


def _keeps(outcome: Outcome, before: int) -> bool:
    """Whether the steps since `before` have crossed one that the plan keeps; the last has its place in any case."""
    crossed, already = (step * outcome.plan.keep // outcome.plan.config.steps for step in (outcome.step, before))
    return crossed > already and not outcome.done


def _description(plan: Plan, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "corsdice_run": FORMAT,
        "algorithm": plan.algorithm,
        "config": _plain(plan.config),
        "settings": plan.settings,
        "members": [
            {"name": m.name, "seed": m.seed, "alpha": m.alpha}
            | ({"cost_limit": m.limit.episode, "limit": str(m.limit)} if m.limit else {})
            | ({"settings": dict(m.settings)} if m.settings else {})
            for m in plan.members
        ],
        "horizon": plan.horizon,
        "discount": plan.discount,
        "holdout": plan.holdout,
        "chunk": plan.chunk,
        "mode": plan.mode,
        "keep": plan.keep,
        "data": data,
        "versions": {"corsdice": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("jax", "jaxlib", "flax", "optax", "numpy")},
    }


def _plain(config: Any) -> dict[str, Any]:
    """As JSON reads it again."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _start_or_resume(directory: Path, content: dict[str, Any], trainer: Trainer) -> None:
    files.output_directory(directory)
    if not (directory / DESCRIPTION).exists():
        if any(not path.name.startswith(".") for path in directory.iterdir()):  # a kill may leave a temporary file
            raise UserError(f"{directory} is not empty and holds no run: choose another --out")
        files.write_json(directory / DESCRIPTION, content)
        return
    found = description(directory)
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
    else:
        (directory / METRICS).unlink(missing_ok=True)


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
    trainer.outcome = _restored(directory, trainer.outcome)
    known = [row for row in read_metrics(directory) if row["step"] <= trainer.outcome.step]
    with files.atomic(directory / METRICS) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in known))


def _restored(directory: Path, outcome: Outcome) -> Outcome:
    path = directory / CHECKPOINT
    metadata = files.read_tensors_metadata(path)
    states = jax.tree.map(jax.numpy.asarray, files.read_tensors(path, outcome.states))
    return outcome._replace(step=int(metadata["step"]), states=states, failures=_failures(metadata))


def _failures(metadata: dict[str, str]) -> dict[int, str]:
    return {int(index): reason for index, reason in json.loads(metadata["failures"]).items()}


def read_metrics(directory: Path) -> list[dict[str, Any]]:
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
