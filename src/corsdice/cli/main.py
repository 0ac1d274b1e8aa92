"""Parsing, dispatch, and the promise about mistakes: one line on stderr, exit code 2, a traceback only on demand."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import tyro

from corsdice import __version__
from corsdice.cli.collect import DataCollectConfig, DataSnapshotsConfig
from corsdice.cli.data import DataCheckConfig, DataConvertConfig, DataMakeConfig
from corsdice.cli.doctor import DoctorConfig
from corsdice.cli.dsrl import DataDownloadConfig, DataListConfig, DataShowConfig
from corsdice.cli.filter import DataFilterConfig
from corsdice.cli.learn_configs import EvaluateConfig, OpeConfig, ReportConfig, TrainConfig
from corsdice.cli.select_config import SelectConfig
from corsdice.cli.sweep_config import SweepConfig
from corsdice.errors import UserError
from corsdice.experiments.actors_config import ActorsConfig
from corsdice.experiments.bench_configs import (
    BenchDiffusionConfig,
    BenchScaleConfig,
    BenchTabularConfig,
    BenchTrainingConfig,
)
from corsdice.experiments.bench_dsrl_config import BenchDsrlConfig, DsrlAdvancedConfig
from corsdice.experiments.calibration_config import CalibrationConfig
from corsdice.experiments.configs import (
    ConstrainedMDPConfig,
    DemoConfig,
    FourRoomsConfig,
    OpeTableConfig,
    RandomMDPConfig,
)
from corsdice.experiments.d4rl_config import D4rlTableConfig
from corsdice.experiments.selection_config import SelectionConfig

RUNNERS = {
    DataCheckConfig: "corsdice.cli.data",
    DataConvertConfig: "corsdice.cli.data",
    DataFilterConfig: "corsdice.cli.filter",
    DataMakeConfig: "corsdice.cli.data",
    DataCollectConfig: "corsdice.cli.collect",
    DataSnapshotsConfig: "corsdice.cli.collect",
    DataListConfig: "corsdice.cli.dsrl",
    DataShowConfig: "corsdice.cli.dsrl",
    DataDownloadConfig: "corsdice.cli.dsrl",
    TrainConfig: "corsdice.cli.learn",
    OpeConfig: "corsdice.cli.ope",
    SelectConfig: "corsdice.cli.select",
    EvaluateConfig: "corsdice.cli.learn",
    ReportConfig: "corsdice.cli.learn",
    SweepConfig: "corsdice.cli.sweep",
    RandomMDPConfig: "corsdice.experiments.random_mdp",
    FourRoomsConfig: "corsdice.experiments.four_rooms",
    ConstrainedMDPConfig: "corsdice.experiments.constrained_mdp",
    OpeTableConfig: "corsdice.experiments.ope",
    CalibrationConfig: "corsdice.experiments.calibration",
    D4rlTableConfig: "corsdice.experiments.d4rl",
    SelectionConfig: "corsdice.experiments.selection_regret",
    ActorsConfig: "corsdice.experiments.actors",
    DsrlAdvancedConfig: "corsdice.experiments.bench_dsrl",
    BenchTabularConfig: "corsdice.experiments.bench_tabular",
    BenchTrainingConfig: "corsdice.experiments.bench_training",
    BenchDiffusionConfig: "corsdice.experiments.bench_diffusion",
    BenchDsrlConfig: "corsdice.experiments.bench_dsrl",
    BenchScaleConfig: "corsdice.experiments.bench_scale",
    DemoConfig: "corsdice.experiments.demo",
    DoctorConfig: "corsdice.cli.doctor",
}
"""The module whose `run` carries a configuration out and may return an exit code; imported only then, because it may
import JAX."""


@dataclass(frozen=True)
class Reproduce:
    """Compute a figure or table of the paper."""

    figure: (
        Annotated[RandomMDPConfig, tyro.conf.subcommand("random-mdp")]
        | Annotated[FourRoomsConfig, tyro.conf.subcommand("four-rooms")]
        | Annotated[ConstrainedMDPConfig, tyro.conf.subcommand("constrained-mdp")]
        | Annotated[OpeTableConfig, tyro.conf.subcommand("ope")]
        | Annotated[CalibrationConfig, tyro.conf.subcommand("calibration")]
        | Annotated[D4rlTableConfig, tyro.conf.subcommand("d4rl")]
        | Annotated[SelectionConfig, tyro.conf.subcommand("selection")]
        | Annotated[ActorsConfig, tyro.conf.subcommand("actors")]
        | Annotated[DsrlAdvancedConfig, tyro.conf.subcommand("dsrl-advanced")]
    )


@dataclass(frozen=True)
class Bench:
    """Measure time and memory on this machine, or policies by DSRL's protocol."""

    subject: (
        Annotated[BenchTabularConfig, tyro.conf.subcommand("tabular")]
        | Annotated[BenchTrainingConfig, tyro.conf.subcommand("training")]
        | Annotated[BenchDiffusionConfig, tyro.conf.subcommand("diffusion")]
        | Annotated[BenchDsrlConfig, tyro.conf.subcommand("dsrl")]
        | Annotated[BenchScaleConfig, tyro.conf.subcommand("scale")]
    )


@dataclass(frozen=True)
class Data:
    """Look at logged data, bring it into another format, filter it, make some, or fetch DSRL's."""

    action: (
        Annotated[DataCheckConfig, tyro.conf.subcommand("check")]
        | Annotated[DataConvertConfig, tyro.conf.subcommand("convert")]
        | Annotated[DataFilterConfig, tyro.conf.subcommand("filter")]
        | Annotated[DataMakeConfig, tyro.conf.subcommand("make")]
        | Annotated[DataCollectConfig, tyro.conf.subcommand("collect")]
        | Annotated[DataSnapshotsConfig, tyro.conf.subcommand("snapshots")]
        | Annotated[DataListConfig, tyro.conf.subcommand("list")]
        | Annotated[DataShowConfig, tyro.conf.subcommand("show")]
        | Annotated[DataDownloadConfig, tyro.conf.subcommand("download")]
    )


@dataclass(frozen=True)
class App:
    """Offline constrained reinforcement learning: a safe policy, and an honest estimate of its cost, from logs alone.

    `--debug`, anywhere, shows the traceback of an error. `--version` prints the version.
    """

    command: (
        Annotated[Data, tyro.conf.subcommand("data")]
        | Annotated[TrainConfig, tyro.conf.subcommand("train")]
        | Annotated[OpeConfig, tyro.conf.subcommand("ope")]
        | Annotated[SelectConfig, tyro.conf.subcommand("select")]
        | Annotated[EvaluateConfig, tyro.conf.subcommand("evaluate")]
        | Annotated[ReportConfig, tyro.conf.subcommand("report")]
        | Annotated[SweepConfig, tyro.conf.subcommand("sweep")]
        | Annotated[DemoConfig, tyro.conf.subcommand("demo")]
        | Annotated[DoctorConfig, tyro.conf.subcommand("doctor")]
        | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a Greek letter must not fail on a terminal that has none
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if arguments == ["--version"]:
        print(f"corsdice {__version__}")
        return 0
    try:
        config = _parse(arguments)
        told = import_module(RUNNERS[type(config)]).run(config)
        return told if isinstance(told, int) else 0  # some tell what they have found, for those who call them in Python
    except UserError as error:
        if debug:
            raise
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        return _fail("interrupted before anything was finished; nothing was written", 130)
    except BrokenPipeError:  # the reader of our output has gone, as in `corsdice … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(message: str, code: int) -> int:
    print(f"corsdice: {message}", file=sys.stderr)
    return code


def _parse(arguments: list[str]) -> Any:
    """The configuration that the arguments name; a UserError, in one line, for a mistake."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            app = tyro.cli(App, prog="corsdice", args=arguments, config=(tyro.conf.OmitSubcommandPrefixes,))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(said.getvalue(), arguments)) from None
    if type(app.command) in RUNNERS:
        return app.command
    (chosen,) = vars(app.command).values()
    return chosen


def _one_line(box: str, arguments: list[str]) -> str:
    """The substance of tyro's boxed message: what is wrong, and the suggestion if it has one.

    The box has a frame with the title in it or, where the terminal knows no such characters, a title in a section.
    """
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip("│ ")
        if text and set(text) <= {"─", "-"}:
            sections.append([])
        elif text and text[0] not in "╭╰":
            sections[-1].append(text)
    if "╭" not in box and len(sections) > 1:
        del sections[0]
    wrong = re.sub(r"^Error parsing [\w.]+: (?=--)", "", " ".join(sections[0]))
    hints = [" ".join(part[:2]) for part in sections[1:] if part and part[0].startswith(("Perhaps", "Available"))]
    named = [argument for argument in arguments[:2] if not argument.startswith("-") and argument not in wrong]
    return f"{'. '.join([wrong.rstrip('.'), *hints])}. See: {' '.join(['corsdice', *named, '--help'])}"
