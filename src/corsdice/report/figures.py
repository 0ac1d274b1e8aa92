"""The look that the figures share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE = {
    "OptiDICE": ("#0072b2", "o"),
    "COptiDICE": ("#0072b2", "o"),
    "SemiDICE": ("#d55e00", "s"),
    "naive SemiDICE": ("#d55e00", "s"),
    "Extraction": ("#009e73", "D"),
    "CORSDICE": ("#009e73", "D"),
    "f-DVL": ("#cc79a7", "^"),
    "ODICE": ("#e69f00", "v"),
    "SQL": ("#56b4e9", "x"),
    "XQL": ("#555555", "+"),
    "LP optimum": ("#000000", "*"),
}
"""Colour (Okabe and Ito's, told apart by colour-blind eyes) and marker of each method, the same in every figure."""


@contextmanager
def figure(rows: int, columns: int, width: float, height: float) -> Iterator[tuple[Figure, Any]]:
    """A figure that draws to files only, whatever the machine's screen, and is closed afterwards."""
    with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 130, "font.size": 9}):
        plt.switch_backend("agg")
        fig, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
        try:
            yield fig, axes
        finally:
            plt.close(fig)


def band(axis: Axes, x: np.ndarray, values: np.ndarray, method: str, whole_range: bool = False) -> None:
    """The mean of values [len(x), runs] with a 95 % confidence band, or with the range that holds 90 % of the runs."""
    color, marker = STYLE[method]
    mean = values.mean(-1)
    half = 1.96 * values.std(-1) / np.sqrt(values.shape[-1])
    low, high = np.quantile(values, [0.05, 0.95], axis=-1) if whole_range else (mean - half, mean + half)
    axis.plot(x, mean, color=color, marker=marker, markersize=5, linewidth=1.4, label=method)
    axis.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


ESTIMATORS = {
    "models": ("#f0e442", "P"),
    "extraction": ("#009e73", "D"),
    "extraction-networks": ("#56b4e9", "d"),
    "extraction-networks-kl": ("#999999", "d"),
    "extraction-states": ("#000000", "x"),
    "dualdice": ("#0072b2", "o"),
    "ihope": ("#e69f00", "v"),
    "fqe": ("#cc79a7", "^"),
    "naive": ("#d55e00", "s"),
}


def calibration(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Estimates against truth, with the intervals of the models; on the diagonal an estimate is right."""
    truth = [row["truth"] for row in rows]
    ends = (min(truth), max(truth))
    axis.plot(ends, ends, color="#000000", linewidth=0.8)
    for name in dict.fromkeys(row["estimator"] for row in rows):
        chosen = [row for row in rows if row["estimator"] == name]
        color, marker = ESTIMATORS[name]
        x, y = ([row[column] for row in chosen] for column in ("truth", "estimate"))
        if name == "models":
            bars = [[row["estimate"] - row["low"] for row in chosen], [row["high"] - row["estimate"] for row in chosen]]
            axis.errorbar(x, y, yerr=np.maximum(bars, 0), fmt="none", color=color, linewidth=0.8)
        axis.scatter(x, y, color=color, marker=marker, s=14, label=name)
    axis.set(xlabel="simulated", ylabel="estimated")
