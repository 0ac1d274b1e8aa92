"""The report of a training run: one HTML page that needs no network, no server and no other file.

Its text (names, paths, reasons) may come from anywhere, so it is escaped wherever it goes: by the template in HTML and
in the script, and by `plain` in the charts, where Plotly would obey tags.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from corsdice.files import atomic
from corsdice.report.templates import page_template

JSON = dict[str, Any]
Member = Mapping[str, Any]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's, without the black and the yellow, which vanish on a dark and on a light page."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star")
"""One more than the colours, so that a limit keeps a look of its own beyond the sixth."""

GREY = "rgba(128, 128, 128, 0.3)"
AXIS = {"gridcolor": GREY, "zerolinecolor": GREY, "automargin": True}
LAYOUT = {
    "paper_bgcolor": "rgba(0, 0, 0, 0)",
    "plot_bgcolor": "rgba(0, 0, 0, 0)",
    "font": {"color": "#808080", "size": 12, "family": "system-ui, sans-serif"},
    "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
    "hovermode": "closest",
    "hoverlabel": {"namelength": -1},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
}

OTHERWISE = {
    "does not meet": "not meeting it",
    "cannot be told": "cannot be told",
    "failed": "failed in training",
    "none": "not estimated",
}
"""What a policy can do other than meet its limit, as the verdict counts it."""


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write the page of `report` to `path`, whole or not at all."""
    page = render(report)
    with atomic(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render(report: Mapping[str, Any]) -> str:
    """The page of `report`, a mapping of JSON's types whose numbers may be NaN or infinite."""
    members = report["members"]
    looks = Looks(members)
    template = page_template("report.html.j2", number=number, interval=interval, percent=percent, status=status)
    return template.render(
        report=report,
        verdicts=[verdict(limit, [m for m in members if m["cost_limit"] == limit]) for limit in looks.limits],
        charts=charts(report["frontier"], members, looks),
        plotly=Markup(get_plotlyjs()),
    )


def number(value: float | None, digits: int = 4) -> str:
    """Four digits are more than an estimate from logs deserves; a large number keeps its whole part."""
    if not known(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.{digits}g}"


def known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def percent(share: float | None) -> str:
    return f"{100 * share:.3g} %" if known(share) else "–"


def interval(estimate: Mapping[str, float]) -> str:
    return f"[{number(estimate['low'])}, {number(estimate['high'])}]"


def status(member: Member) -> str:
    """How a member fares: its verdict, "failed", or "none" without an estimate."""
    if member["failed"]:
        return "failed"
    return str(member["estimate"]["verdict"]) if member["estimate"] else "none"


def verdict(limit: float, members: Sequence[Member]) -> dict[str, str]:
    """The sentence that answers whether the limit is kept, and its tone: good, bad or unsure."""
    counts = Counter(map(status, members))
    policies = "policy meets" if len(members) == 1 else "policies meet"
    text = f"{counts['meets']} of {len(members)} {policies} the limit with 95 % confidence"
    if others := [f"{words}: {counts[name]}" for name, words in OTHERWISE.items() if counts[name]]:
        text += f" ({', '.join(others)})"
    if good := [m["estimate"]["return"] for m in members if status(m) == "meets"]:
        best = max(good, key=lambda estimate: estimate["value"])
        text += (
            f"; {'it' if len(good) == 1 else 'the best of them'} returns about {number(best['value'])} {interval(best)}"
        )
    tone = (
        "good"
        if len(good) == len(members)
        else "unsure"
        if good or counts["cannot be told"] or counts["none"]
        else "bad"
    )
    return {"limit": number(limit), "tone": tone, "text": text + "."}


class Looks:
    """The look of each limit, the same in every chart. Members are too many for a colour each; hovering names them."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.limits: list[float] = sorted({m["cost_limit"] for m in members})

    def color(self, limit: float) -> str:
        return COLORS[self.limits.index(limit) % len(COLORS)]

    def marker(self, limit: float, hollow: bool = False) -> JSON:
        symbol = SYMBOLS[self.limits.index(limit) % len(SYMBOLS)]
        if hollow:
            return {"symbol": f"{symbol}-open", "color": self.color(limit), "size": 9, "line": {"width": 1.5}}
        return {"symbol": symbol, "color": self.color(limit), "size": 8}

    def trace(self, limit: float, mode: str, **settings: Any) -> JSON:
        look = {"line": {"color": self.color(limit), "width": 1.2}, "opacity": 0.7 if mode == "lines" else 1}
        return {"type": "scatter", "mode": mode, "legendgroup": str(limit), "showlegend": False} | look | settings

    def legend(self, mode: str) -> list[JSON]:
        """A legend of limits, so its entries are traces of their own, without points."""
        return [
            self.trace(limit, mode, x=[None], y=[None], name=f"limit {number(limit)}", showlegend=True, opacity=1)
            | {"marker": self.marker(limit)}
            for limit in self.limits
        ]

    def lines(self, axis: str) -> list[JSON]:
        """A dashed line at each limit, across the whole chart at its place on `axis`."""
        across = "y" if axis == "x" else "x"
        return [
            {"type": "line", "line": {"color": self.color(limit), "width": 2, "dash": "dash"}}
            | {f"{axis}ref": axis, f"{axis}0": limit, f"{axis}1": limit}
            | {f"{across}ref": "paper", f"{across}0": 0, f"{across}1": 1}
            for limit in self.limits
        ]


def charts(points: Sequence[JSON], members: Sequence[Member], looks: Looks) -> list[JSON]:
    """The charts in the order of the page; those with nothing to show are left out."""
    line, point = looks.legend("lines"), looks.legend("markers")
    losses = sorted({name for m in members for name in m["curves"] if name.endswith("_loss")})
    every = [
        chart(
            "The frontier",
            ("Grey: every policy of the family, as estimated. " if points else "")
            + "Filled: what limits have chosen, with 95 % intervals. "
            + "Hollow: the truth, by simulation. Dashed: the limits.",
            ("cost", "return"),
            [*family(points), *chosen(members, looks)],
            legend=point,
            shapes=looks.lines("x"),
        ),
        chart(
            "Multiplier",
            "λ, the price of a unit of cost: it rises while the estimated cost is above the limit.",
            ("step", "λ"),
            curves(members, looks, "multiplier"),
            legend=line,
        ),
        chart(
            "Estimated cost",
            "The estimate that training steers by, in the unit of the limits, which are dashed.",
            ("step", "cost"),
            curves(members, looks, "estimated_cost"),
            legend=line,
            shapes=looks.lines("y"),
        ),
        chart(
            "Costs of single episodes",
            "How often an imagined episode costs so much. A limit holds for the mean: single episodes may exceed it.",
            ("cost of an episode", "episodes"),
            histograms(members, looks),
            legend=line,
            shapes=looks.lines("x"),
            yaxis={"type": "log", "dtick": 1},
        ),
        *(chart(name, "", ("step", ""), curves(members, looks, name), small=True) for name in losses),
    ]
    return [each for each in every if each["data"]]


def chart(
    title: str,
    caption: str,
    axes: tuple[str, str],
    traces: Sequence[JSON],
    *,
    legend: Sequence[JSON] = (),
    small: bool = False,
    yaxis: JSON | None = None,
    shapes: Sequence[JSON] = (),
) -> JSON:
    """One chart as Plotly takes it, with the words around it; no data if there are no traces."""
    x, y = ({"title": {"text": text, "standoff": 8}} | AXIS for text in axes)
    layout = LAYOUT | {"xaxis": x, "yaxis": y | (yaxis or {}), "shapes": shapes}
    data = [*legend, *traces] if traces else []
    return {"title": title, "caption": caption, "small": small, "data": data, "layout": layout}


def plain(text: str) -> str:
    """For Plotly, which obeys a few tags, links among them, in every text that it draws."""
    return escape(text, quote=False)


def family(points: Sequence[JSON]) -> list[JSON]:
    """What each policy of a family is estimated to return and to cost; each way to act is told when pointed at."""
    if not points:
        return []
    values = [[each[quantity]["value"] for each in points] for quantity in ("cost", "return")]
    names = [plain(f"{each['way']} at λ {each['multiplier']:.3g}, {each['trained']}") for each in points]
    hover = "%{text}: return %{y:.4g}, cost %{x:.4g}<extra></extra>"
    marker = {"color": "#808080", "size": 4}
    look = {"type": "scatter", "mode": "markers", "marker": marker, "opacity": 0.6, "showlegend": False}
    return [look | {"x": values[0], "y": values[1], "text": names, "hovertemplate": hover}]


def chosen(members: Sequence[Member], looks: Looks) -> list[JSON]:
    """What each policy returns against what it costs: the estimates, and above them the truths."""

    def point(member: Member, what: str, cost: float, value: float, **bars: JSON) -> JSON:
        limit = member["cost_limit"]
        marker = looks.marker(limit, hollow=what == "truth")
        name = plain(f"{member['name']}: {what}")
        hover = "return %{y:.4g}, cost %{x:.4g}"
        return looks.trace(limit, "markers", x=[cost], y=[value], name=name, marker=marker, hovertemplate=hover) | bars

    def bar(estimate: Mapping[str, float]) -> JSON:
        reach = {"array": [estimate["high"] - estimate["value"]], "arrayminus": [estimate["value"] - estimate["low"]]}
        return {"type": "data", "symmetric": False, "thickness": 1, "width": 0} | reach

    estimates = [(m, m["estimate"]["cost"], m["estimate"]["return"]) for m in members if m["estimate"]]
    truths = [(m, m["truth"]["cost"], m["truth"]["return"]) for m in members if m["truth"]]
    return [
        *(point(m, "estimate", c["value"], r["value"], error_x=bar(c), error_y=bar(r)) for m, c, r in estimates),
        *(point(m, "truth", cost, value) for m, cost, value in truths),
    ]


def curves(members: Sequence[Member], looks: Looks, metric: str) -> list[JSON]:
    """A metric over the steps of training, a line for each member that has it."""
    hover = "%{y:.4g} at step %{x}"
    return [
        looks.trace(m["cost_limit"], "lines", x=c["step"], y=c["value"], name=plain(m["name"]), hovertemplate=hover)
        for m in members
        if (c := m["curves"].get(metric)) and any(map(known, c["value"]))
    ]


def histograms(members: Sequence[Member], looks: Looks) -> list[JSON]:
    """Outlines, since bars of many members would hide each other; an empty bin is a gap, as a logarithm demands."""

    def outline(edges: Sequence[float], counts: Sequence[int]) -> tuple[list[float], list[int | None]]:
        xs = [x for pair in pairwise(edges) for x in pair]
        return xs, [count or None for count in counts for _ in range(2)]

    traces = []
    for m in members:
        if m["estimate"]:
            x, y = outline(**m["estimate"]["episode_costs"])
            hover = "%{y} episodes near %{x:.3g}"
            traces.append(looks.trace(m["cost_limit"], "lines", x=x, y=y, name=plain(m["name"]), hovertemplate=hover))
    return traces
