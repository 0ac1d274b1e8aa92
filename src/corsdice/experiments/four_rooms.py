"""The figure of the last appendix: states in which OptiDICE's optimum has no action, beside SemiDICE's, full."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from corsdice import files, tabular
from corsdice.divergences import by_name
from corsdice.experiments.configs import FourRoomsConfig
from corsdice.report import figures, terminal
from corsdice.tabular import LoggedMDP, Solution, Status
from corsdice.tabular.problems import FOUR_ROOMS, MOVES, FourRooms
from corsdice.tabular.solution import EMPTY_STATE

COLUMNS = ("method", "state", "row", "column", "logged", "mass", "empty", "value", "north", "east", "south", "west")


def run(config: FourRoomsConfig) -> dict[str, Any]:
    """Solves four rooms by both methods, writes the figure, and returns the summary."""
    started = time.monotonic()
    out = files.output_directory(config.out)
    with tabular.float64():
        rooms = tabular.four_rooms(slip=config.slip, discount=config.discount)
        logs = tabular.logged(rooms.mdp, tabular.mixed_behaviour(rooms.mdp, config.optimality))
        f = by_name(config.divergence)
        solutions = jax.device_get(
            {"OptiDICE": tabular.optidice(logs, config.alpha, f), "SemiDICE": tabular.semidice(logs, config.alpha, f)}
        )
        logs = jax.device_get(logs)
    files.write_csv(out / "results.csv", COLUMNS, rows(rooms, logs, solutions))
    methods: dict[str, dict[str, Any]] = {
        method: {
            "empty_states": int(empty(logs, solution).sum()),
            "share_of_the_logs_in_empty_states": float(logs.state_distribution[empty(logs, solution)].sum()),
            "residual": float(solution.residual),
            "status": Status(int(solution.status)).name.lower(),
        }
        for method, solution in solutions.items()
    }
    summary = {"states": len(rooms.cells), "methods": methods}
    summary |= files.provenance(config, time.monotonic() - started)
    files.write_json(out / "summary.json", summary)
    with files.atomic(out / "figure.png") as path:
        draw(rooms, logs, solutions, path)
    terminal.print_table(
        f"Four rooms, {len(rooms.cells)} states, α = {config.alpha:g}",
        ("method", "states without action", "share of the logs there", "status"),
        [
            (method, str(m["empty_states"]), f"{m['share_of_the_logs_in_empty_states']:.1%}", m["status"])
            for method, m in methods.items()
        ],
    )
    terminal.print_written(out, ("results.csv", "summary.json", "figure.png"))
    return summary


def mass(logs: LoggedMDP, solution: Solution) -> np.ndarray:
    """[S] Σ_a w(s,a) π_D(a|s)."""
    return np.asarray((solution.w * logs.behaviour).sum(-1))


def empty(logs: LoggedMDP, solution: Solution) -> np.ndarray:
    """[S] whether the logs hold the state and the method gives it no action."""
    return (mass(logs, solution) < EMPTY_STATE) & (np.asarray(logs.state_distribution) > 0)


def rows(rooms: FourRooms, logs: LoggedMDP, solutions: dict[str, Solution]) -> list[tuple[Any, ...]]:
    return [
        (
            method,
            state,
            *(int(x) for x in rooms.cells[state]),
            float(logs.state_distribution[state]),
            float(mass(logs, solution)[state]),
            bool(empty(logs, solution)[state]),
            float(solution.nu[state]),
            *(float(p) for p in solution.policy[state]),
        )
        for method, solution in solutions.items()
        for state in range(len(rooms.cells))
    ]


def draw(rooms: FourRooms, logs: LoggedMDP, solutions: dict[str, Solution], path: Path) -> None:
    with figures.figure(1, len(solutions), width=9, height=4.8) as (fig, axes):
        for axis, (method, solution) in zip(axes.ravel(), solutions.items(), strict=True):
            is_empty = empty(logs, solution)
            _draw_rooms(axis, rooms, solution, is_empty)
            axis.set_title(f"{method}: {int(is_empty.sum())} of {len(is_empty)} states without an action")
        fig.savefig(path)


def _draw_rooms(axis: Axes, rooms: FourRooms, solution: Solution, is_empty: np.ndarray) -> None:
    """Cells shaded by value, arrows as strong as the action is likely, hatched cells where no action is defined."""
    height, width = len(FOUR_ROOMS), len(FOUR_ROOMS[0])
    axis.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xticks=[], yticks=[], facecolor="#444444")
    value = np.clip(solution.nu, 0, None) / max(float(np.max(solution.nu)), 1e-12)
    for state, (row, column) in enumerate(rooms.cells):
        shade = "white" if is_empty[state] else to_rgba("#e69f00", 0.1 + 0.6 * float(value[state]))
        axis.add_patch(Rectangle((column, row), 1, 1, facecolor="white", edgecolor="#cccccc", linewidth=0.5))
        hatch = "xxx" if is_empty[state] else None
        axis.add_patch(Rectangle((column, row), 1, 1, facecolor=shade, edgecolor="#999999", linewidth=0.3, hatch=hatch))
        if is_empty[state]:
            continue
        for (down, right), probability in zip(MOVES, solution.policy[state], strict=True):
            axis.annotate(
                "",
                xy=(column + 0.5 + 0.42 * right, row + 0.5 + 0.42 * down),
                xytext=(column + 0.5, row + 0.5),
                arrowprops={"arrowstyle": "->", "alpha": min(float(probability), 1.0), "shrinkA": 0, "shrinkB": 0},
            )
    for state, name in ((rooms.start, "S"), (rooms.goal, "G")):
        row, column = rooms.cells[state]
        axis.text(column + 0.5, row + 0.5, name, ha="center", va="center", fontweight="bold", color="#0072b2")
