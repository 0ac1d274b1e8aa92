"""`corsdice doctor`: what works on this machine, and why something does not."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from corsdice.report import terminal

SuiteName = Literal["bullet", "safety-gymnasium", "metadrive", "mujoco"]
DSRL_PHYSICS = "2.3.3"
"""The MuJoCo whose motions are those of DSRL's data."""


@dataclass(frozen=True)
class DoctorConfig:
    """Say which simulators work on this machine, and why one does not: every task is really reset and stepped."""

    suites: tuple[SuiteName, ...] = ("bullet", "safety-gymnasium", "metadrive", "mujoco")
    quick: bool = False
    """One task of each suite."""
    json: bool = False
    """Print what was found as JSON."""


def run(config: DoctorConfig) -> None:
    from corsdice.envs import examine

    chosen = {suite: examine.tasks_of(suite)[: 1 if config.quick else None] for suite in config.suites}
    findings = []
    with terminal.progress(sum(map(len, chosen.values())), "tasks") as advance:
        for suite, tasks in chosen.items():
            for finding in examine.examine(suite, tasks):
                findings.append(finding)
                advance(finding.task)
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "jax": version("jax"),
        "cores": os.cpu_count(),
        "packages": {suite: examine.versions(suite) for suite in chosen},
        "tasks": [finding._asdict() for finding in findings],
    }
    if config.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


def show(report: dict[str, Any]) -> None:
    print(f"Python {report['python']}, JAX {report['jax']}, {report['cores']} cores")
    rows = []
    for suite, packages in report["packages"].items():
        tasks = [task for task in report["tasks"] if task["suite"] == suite]
        working = [task for task in tasks if task["problem"] is None]
        speeds = [task["steps_a_second"] for task in working]
        rows.append(
            (
                suite,
                ", ".join(f"{name} {found or 'missing'}" for name, found in packages.items()),
                f"{len(working)}/{len(tasks)}",
                f"{min(speeds):,.0f} to {max(speeds):,.0f}" if speeds else "-",
            )
        )
    terminal.print_table("Simulators", ("suite", "packages", "tasks that step", "steps a second"), rows)
    for task in report["tasks"]:
        if task["problem"] is not None:
            print(f"{task['task']}: {task['problem']}")
    physics = report["packages"].get("safety-gymnasium", {}).get("mujoco")
    if physics not in (None, DSRL_PHYSICS):
        print(f"MuJoCo {physics} moves bodies otherwise than {DSRL_PHYSICS}, which DSRL used and `make sim` installs")
