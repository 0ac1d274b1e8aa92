"""The table of a benchmark as the paper has it, grey unsafe, bold safe, blue the best safe return, in four renderings.

Rows are tasks with the averages of their suites, columns are algorithms with normalised return and cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal, NamedTuple

from rich.text import Text

from corsdice.report import terminal
from corsdice.report.templates import page_template

Result = Mapping[str, Any]
"""A line of results.csv; a policy that failed in training has None for its numbers."""

SELECTIONS = {
    "oracle": "α chosen with the simulator, as in the paper (oracle)",
    "offline": "α chosen by the estimates from logs alone (offline)",
    "last": "α not chosen, mean over all (last)",
}
PUBLISHED = "published, on DSRL's data"
ABOUT = (
    "Grey: unsafe. Bold: safe, a normalised cost of at most 1. Blue: the largest return among the safe of a row.",
    "The oracle chooses with the simulator, by the very episodes that it is then judged by: logs alone cannot do that.",
)

Look = Literal["unsafe", "safe", "best", "published", "missing"]
RICH: dict[Look, str] = {
    "unsafe": "bright_black",
    "safe": "bold",
    "best": "bold blue",
    "published": "italic",
    "missing": "",
}
LATEX: dict[Look, str] = {
    "unsafe": r"\textcolor[HTML]{656565}{%s}",
    "safe": r"\textbf{%s}",
    "best": r"\textbf{\textcolor[HTML]{0000FF}{%s}}",
    "published": r"\textit{%s}",
    "missing": "%s",
}
LATEX_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "α": r"$\alpha$", "–": "--"}
)
CSV_COLUMNS = ("selection", "row", "cost_limit", "column", "normalised_return", "normalised_cost", "look")


class Score(NamedTuple):
    normalised_return: float
    normalised_cost: float

    @property
    def safe(self) -> bool:
        return self.normalised_cost <= 1

    @property
    def shown_return(self) -> float:
        """Returns that read alike are equally good."""
        return round(self.normalised_return, 2)


Scores = Mapping[str, Score | None]
"""By algorithm; None where there are no numbers."""


class Cell(NamedTuple):
    look: Look
    score: Score | None

    @property
    def numbers(self) -> tuple[str, str]:
        return (f"{self.score[0]:.2f}", f"{self.score[1]:.2f}") if self.score else ("–", "–")


class Row(NamedTuple):
    name: str
    limit: float | None
    """None where it is a mean over limits."""
    average: bool
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        return self.name if self.limit is None else f"{self.name}, limit {self.limit:g}"


class Table(NamedTuple):
    selection: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def average_name(suite: str) -> str:
    return f"{suite} average"


def mean_tables(
    results: Sequence[Result], suites: Mapping[str, str], published: Mapping[tuple[str, str], Score]
) -> list[Table]:
    """For each selection: means over limits and seeds. Published numbers stand beside the oracle's, never in a mean.

    `suites` has the suite of each task, `published` the scores by row and algorithm.
    """
    tables = []
    for selection, words in SELECTIONS.items():
        tasks = _grouped(results, selection, "task")
        scores = {task: _scores(inside) for (task,), inside in tasks.items()}
        rows = [(name, None, name not in scores, each) for name, each in _with_averages(scores, suites).items()]
        beside = published if selection == "oracle" else {}
        tables.append(_table(selection, f"{words}, mean over limits", rows, beside))
    return tables


def limit_tables(results: Sequence[Result]) -> list[Table]:
    """For each selection: means over seeds, a row for each task and limit."""
    tables = []
    for selection, words in SELECTIONS.items():
        places = _grouped(results, selection, "task", "cost_limit")
        rows = [(task, limit, False, _scores(inside)) for (task, limit), inside in places.items()]
        tables.append(_table(selection, f"{words}, by limit", rows, {}))
    return tables


def _grouped(results: Iterable[Result], selection: str, *names: str) -> dict[tuple[Any, ...], list[Result]]:
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        if result["selection"] == selection:
            groups.setdefault(tuple(result[name] for name in names), []).append(result)
    return groups


def _scores(results: Sequence[Result]) -> Scores:
    """The mean over the policies of each algorithm that did not fail."""
    found: dict[str, list[Score | None]] = {result["algorithm"]: [] for result in results}
    for result in results:
        if result["normalised_return"] is not None:
            found[result["algorithm"]].append(Score(result["normalised_return"], result["normalised_cost"]))
    return {algorithm: _mean(scores) for algorithm, scores in found.items()}


def _mean(scores: Collection[Score | None]) -> Score | None:
    """None if there is nothing to average, or not everything."""
    known = [score for score in scores if score is not None]
    return Score(*map(fmean, zip(*known, strict=True))) if known and len(known) == len(scores) else None


def _with_averages(scores: Mapping[str, Scores], suites: Mapping[str, str]) -> dict[str, Scores]:
    """The tasks suite by suite, each suite with its average, and the average of all where there are several."""

    def average(lines: Collection[Scores]) -> Scores:
        # A task without numbers leaves none for the average, which would be compared with those of all tasks.
        return {algorithm: _mean([line[algorithm] for line in lines]) for algorithm in next(iter(lines))}

    found: dict[str, Scores] = {}
    names = list(dict.fromkeys(suites[task] for task in scores))
    for suite in names:
        inside = {task: each for task, each in scores.items() if suites[task] == suite}
        found |= inside | {average_name(suite): average(inside.values())}
    return found | {"average of all tasks": average(scores.values())} if len(names) > 1 else found


def _table(
    selection: str,
    title: str,
    lines: Sequence[tuple[str, float | None, bool, Scores]],
    published: Mapping[tuple[str, str], Score],
) -> Table:
    algorithms = list(lines[0][-1])
    beside = {name for name in algorithms if any((line[0], name) in published for line in lines)}
    columns = [
        column for name in algorithms for column in ((name, f"{name} {PUBLISHED}") if name in beside else (name,))
    ]
    rows = []
    for name, limit, average, scores in lines:
        cells = []
        for algorithm, cell in zip(algorithms, ranked([scores[each] for each in algorithms]), strict=True):
            cells.append(cell)
            if algorithm in beside:
                theirs = published.get((name, algorithm))
                cells.append(Cell("published" if theirs else "missing", theirs))
        rows.append(Row(name, limit, average, tuple(cells)))
    return Table(selection, title, tuple(columns), tuple(rows))


def ranked(scores: Sequence[Score | None]) -> list[Cell]:
    """The cells of a row, which tell the safe from the unsafe and the best of the safe from the others."""
    best = max((score.shown_return for score in scores if score and score.safe), default=None)

    def look(score: Score | None) -> Look:
        if score is None:
            return "missing"
        if not score.safe:
            return "unsafe"
        return "best" if score.shown_return == best else "safe"

    return [Cell(look(score), score) for score in scores]


def print_table(table: Table) -> None:
    terminal.print_table(
        table.title,
        ("return, cost", *table.columns),
        [
            (
                Text(row.title, "bold" if row.average else ""),
                *(Text(" ".join(cell.numbers), RICH[cell.look]) for cell in row.cells),
            )
            for row in table.rows
        ],
    )


def print_summary(summary: Sequence[Mapping[str, Any]]) -> None:
    """Interquartile means with their intervals, a line for each selection and algorithm."""
    terminal.print_table(
        "Interquartile means over tasks and seeds, with 95 % intervals",
        ("algorithm", "α", "return", "cost", "safe"),
        [
            (
                line["algorithm"],
                line["selection"],
                *("{value:.2f} ({low:.2f} to {high:.2f})".format(**line[name]) for name in Score._fields),
                f"{line['safe_share']:.0%}",
            )
            for line in summary
        ],
    )


def csv_rows(tables: Iterable[Table]) -> list[tuple[Any, ...]]:
    """CSV_COLUMNS of every cell. Without a limit it is a mean over limits, without numbers nothing was trained."""
    return [
        (table.selection, row.name, row.limit, column, *(cell.score or (None, None)), cell.look)
        for table in tables
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    ]


def latex(tables: Iterable[Table]) -> str:
    """Every table as a float, for a document with the packages booktabs and xcolor."""
    return "% \\usepackage{booktabs,xcolor}\n" + "\n".join(map(_latex_table, tables))


def _latex_table(table: Table) -> str:
    count = len(table.columns)
    heads = "".join(rf" & \multicolumn{{2}}{{c}}{{{column.translate(LATEX_ESCAPES)}}}" for column in table.columns)
    lines = [_latex_row(table.rows[0])]
    for before, row in pairwise(table.rows):
        lines += [r"\midrule"] * (before.average or row.average) + [_latex_row(row)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{table.title.translate(LATEX_ESCAPES)}}}",
            rf"\begin{{tabular}}{{l{'rr' * count}}}",
            r"\toprule",
            rf"{heads} \\",
            " ".join(rf"\cmidrule(lr){{{first}-{first + 1}}}" for first in range(2, 2 * count + 2, 2)),
            rf"{' & return & cost' * count} \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_row(row: Row) -> str:
    title = row.title.translate(LATEX_ESCAPES)
    numbers = [LATEX[cell.look] % number.translate(LATEX_ESCAPES) for cell in row.cells for number in cell.numbers]
    return " & ".join([rf"\textbf{{{title}}}" if row.average else title, *numbers]) + r" \\"


def html(
    title: str,
    summary: Sequence[Mapping[str, Any]],
    means: Sequence[Table],
    by_limit: Sequence[Table],
    notes: Sequence[str],
) -> str:
    """One page that needs no other file and no network."""
    template = page_template("benchmark.html.j2", number="{:.2f}".format, percent="{:.0%}".format)
    return template.render(title=title, summary=summary, means=means, by_limit=by_limit, notes=notes)
