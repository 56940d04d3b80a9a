"""Figures with matplotlib or Altair, whichever is there."""

from __future__ import annotations

import importlib
import importlib.util
import math
from typing import Any, Literal

from ._frames import to_columns

_UNITS = [("_bytes_per_s", "bytes/s"), ("_per_s", "1/s"), ("_ns", "ns"), ("_s", "s"), ("_bytes", "bytes")]


def figure(
    data: Any, x: str, y: str, *, by: str | None = None, library: Literal["matplotlib", "altair"] | None = None
) -> Any:
    """A figure of a column over another, a line for each value of ``by``, with units on the axes.

    Shape: ``data`` is a frame or a dict of columns; where it has ``Y_low`` and ``Y_high``, they are drawn as intervals.
    Answers with matplotlib's ``Figure`` or Altair's ``Chart``.

    Units: as the names of the columns end.

    >>> chart = figure({"clients": [1, 2], "throughput_per_s": [10.0, 19.0]}, "clients", "throughput_per_s", library="altair")
    >>> chart.to_dict()["layer"][0]["encoding"]["y"]["title"]
    'throughput (1/s)'
    """
    columns = to_columns(data)
    wanted = [library] if library else ["matplotlib", "altair"]
    for name in wanted:
        if importlib.util.find_spec(name) is not None:
            return (_matplotlib if name == "matplotlib" else _altair)(columns, x, y, by)
    raise ModuleNotFoundError(f"no {' or '.join(wanted)} here: install one, for example with `pip install matplotlib`")


def label(column: str) -> str:
    """The name of a column for people, its unit behind it."""
    for end, unit in _UNITS:
        if column.endswith(end):
            return f"{column.removesuffix(end).replace('_', ' ')} ({unit})"
    return column.replace("_", " ")


def _matplotlib(columns: dict[str, list[Any]], x: str, y: str, by: str | None) -> Any:
    # Not pyplot, which keeps every figure until it is closed.
    drawn = importlib.import_module("matplotlib.figure").Figure(layout="constrained")
    axes = drawn.subplots()
    groups = list(dict.fromkeys(columns[by])) if by else [None]
    for group in groups:
        rows = [row for row in range(len(columns[x])) if by is None or columns[by][row] == group]
        of_group = {name: [values[row] for row in rows] for name, values in columns.items()}
        name = None if group is None else str(group)
        if f"{y}_low" in columns:
            # An estimate without an interval has a point, and no bar.
            center, low, high = ([math.nan if value is None else value for value in of_group[name]]
                                 for name in (y, f"{y}_low", f"{y}_high"))
            ends = [[c - l for c, l in zip(center, low)], [h - c for c, h in zip(center, high)]]
            axes.errorbar(of_group[x], of_group[y], yerr=ends, marker="o", capsize=3, label=name)
        else:
            axes.plot(of_group[x], of_group[y], marker="o", label=name)
    axes.set_xlabel(label(x))
    axes.set_ylabel(label(y))
    axes.set_ylim(bottom=0)
    if by:
        axes.legend(title=label(by))
    return drawn


def _altair(columns: dict[str, list[Any]], x: str, y: str, by: str | None) -> Any:
    altair = importlib.import_module("altair")
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    base = altair.Chart(altair.Data(values=rows))
    color = [altair.Color(by, type="nominal", title=label(by))] if by else []
    over = altair.X(x, type="quantitative", title=label(x))
    line = base.mark_line(point=True).encode(over, altair.Y(y, type="quantitative", title=label(y)), *color)
    if f"{y}_low" not in columns:
        return altair.layer(line)
    ends = base.mark_errorbar().encode(over, altair.Y(f"{y}_low", type="quantitative", title=label(y)), altair.Y2(f"{y}_high"), *color)
    return altair.layer(line, ends)
