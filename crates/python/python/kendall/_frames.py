"""Frames of pandas or polars, whichever is there."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Library = Literal["pandas", "polars"]


def frame(rows: Iterable[Mapping[str, Any]], frames: Library | None = None) -> Any:
    """Rows of an answer as a frame: nested keys joined by ``_``, an estimate as NAME, NAME_low and NAME_high.

    >>> table = frame([{"clients": 1, "response_time_s": {"center": 2.0, "interval": {"low": 1.0, "high": 3.0}}}])
    >>> list(table.columns)
    ['clients', 'response_time_s', 'response_time_s_low', 'response_time_s_high']
    """
    flat = [dict(_flat("", row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return from_columns({name: [row.get(name) for row in flat] for name in names}, frames)


def _flat(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield path, value
        return
    if "center" in value:
        center, half = value["center"], value.get("half_width")
        ends = value.get("interval") or ({} if half is None else {"low": center - half, "high": center + half})
        yield from [(path, center), (f"{path}_low", ends.get("low")), (f"{path}_high", ends.get("high"))]
        return
    for key, one in value.items():
        yield from _flat(f"{path}_{key}" if path else key, one)


def from_columns(columns: Mapping[str, list[Any]], frames: Library | None = None) -> Any:
    """Columns as a frame."""
    for library in (frames,) if frames else ("pandas", "polars"):
        try:
            module = importlib.import_module(library)
        except ModuleNotFoundError:
            continue
        if library == "polars":
            return module.DataFrame(columns, strict=False, infer_schema_length=None)
        return module.DataFrame(columns)
    raise ModuleNotFoundError(f"no {frames or 'pandas or polars'} here: install one, for example with `pip install pandas`")


def to_columns(data: Any) -> dict[str, list[Any]]:
    """The columns of a frame, or of a dict of columns."""
    names = list(data) if isinstance(data, Mapping) else list(data.columns)
    return {str(name): list(data[name]) for name in names}
