"""Optuna's record of a search: which trials there are, and how each has ended.

One file of JSON lines, so nothing is unpickled; `optuna-dashboard` and Optuna itself read it. A kill loses at most the
line that was being written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corsdice import files
from corsdice.errors import UserError
from corsdice.training.space import Space

try:
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState, create_trial
except ImportError as error:
    raise UserError("a search needs the package optuna: pip install 'corsdice[search]'") from error

FILE, STUDY = "journal.log", "sweep"


class Journal:
    """The trials of one search, numbered as they were drawn."""

    def __init__(self, out: Path) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path = out / FILE
        if not path.exists() and any(not found.name.startswith(".") for found in out.iterdir()):
            raise UserError(f"{out} is not empty and holds no search: choose another --out")
        _drop_cut_line(path)
        try:
            self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
            self._study = optuna.create_study(
                storage=self._storage, study_name=STUDY, direction="maximize", load_if_exists=True
            )
        except (ValueError, KeyError) as error:
            raise UserError(f"{path} is damaged: {error}") from error

    def begin(self, asked: dict[str, Any], space: Space, draws: list[dict[str, Any]]) -> None:
        """Notes what is asked for and which trials there are to be; a journal of another search is refused."""
        asked = json.loads(json.dumps(asked))
        found = self._study.user_attrs.get("asked")
        for name, value in asked.items():
            if found is not None and found.get(name) != value:
                raise UserError(
                    f"the search was started with another {name} ({found.get(name)}, now {value}): choose another --out"
                )
        if found is None:
            self._study.set_user_attr("asked", asked)
        for drawn in draws[len(self.trials()) :]:
            self._study.add_trial(create_trial(state=TrialState.RUNNING, params=drawn, distributions=space))

    def trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def end(self, number: int, state: TrialState, value: float | None, step: int, about: dict[str, Any]) -> None:
        """How a trial has ended; a kill in the middle leaves it unfinished, to be told again."""
        if self.trials()[number].state.is_finished():
            return
        study = self._storage.get_study_id_from_name(STUDY)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study, number)
        for name, content in about.items():
            self._storage.set_trial_user_attr(trial, name, content)
        if value is not None:
            self._storage.set_trial_intermediate_value(trial, step, value)
        self._study.tell(number, value if state is TrialState.COMPLETE else None, state)


def _drop_cut_line(path: Path) -> None:
    """Optuna would write the next line behind one that a kill has cut short, and then read neither."""
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with files.atomic(path) as temporary:
            temporary.write_bytes(content[:whole])
