"""Queueing models, fits, designs, predictions and results of Kendall.

Functions calculate in this process, without the interpreter's lock, and answer with what the command of the same name
prints with ``--format json``: keys end in their unit (``response_time_mean_s``, ``throughput_per_s``), quantities are in
SI units. What the program refuses is a :class:`KendallError` with the program's words. See docs/python.md.
"""

from __future__ import annotations

import csv as _csv
import json as _json
import os as _os
import shutil as _shutil
import subprocess as _subprocess
import sysconfig as _sysconfig
import tempfile as _tempfile
import warnings as _warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from . import _native
from ._frames import Library, frame, from_columns, to_columns
from ._figures import figure

__all__ = [
    "CheckFailed", "KendallError", "Results", "analyze", "design", "figure", "fit", "frame", "predict", "program", "read",
    "run", "simulate", "solve",
]

Model = Mapping[str, Any] | str | _os.PathLike[str]
Data = Mapping[str, Iterable[Any]] | Any
Folder = str | _os.PathLike[str]
_Found = TypeVar("_Found")


class KendallError(RuntimeError):
    """What the program refused or could not do, in its words; ``exit_code`` is what the command would end with."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class CheckFailed(KendallError):
    """A check that the input states does not hold; ``answer`` is the answer all the same."""

    def __init__(self, answer: Any) -> None:
        super().__init__("a stated check failed", 4)
        self.answer = answer


def solve(
    model: Model,
    *,
    solver: str | None = None,
    percentiles: Iterable[float] = (),
    sweep: Mapping[str, tuple[float, float, float]] | None = None,
    frames: Library | None = None,
) -> Any:
    """Solves a queueing model: keys of a model file, or the path of one (docs/models.md).

    Shape: a dict with ``classes``, ``stations`` (a list each, in the model's order), ``accuracy`` (``exact``, ``bound``
    or ``approximation``) and ``caveats``. With ``sweep``, KEY: (from, to, step), a frame with a row a point instead.

    Units: seconds and 1/s, as the names of the keys say.

    Source: product-form networks by exact mean value analysis [LZGS84 §6.4], single stations after [Jain91 §31]; the
    answer names its solver.

    >>> answer = solve({"arrival_rate_per_s": 100, "stations": [{"name": "server", "service_time_s": 0.005}]})
    >>> answer["accuracy"], round(answer["classes"][0]["system_response_time_mean_s"], 6)
    ('exact', 0.01)
    >>> solve({"arrival_rate_per_s": 300, "stations": [{"name": "server", "service_time_s": 0.005}]})
    Traceback (most recent call last):
    kendall.KendallError: station `server`: no steady state: 1.500000 erlangs are offered to 1 server; ...
    """
    options: dict[str, Any] = {"solver": solver, "percentiles": list(percentiles)}
    options["sweep"] = [f"{key}={start}:{end}:{step}" for key, (start, end, step) in (sweep or {}).items()]
    answer = _of_model(model, options)
    return frame(answer["points"], frames) if "points" in answer else answer


def simulate(
    model: Model,
    *,
    seed: int | None = None,
    replications: int | None = None,
    until: str | None = None,
    most_customers: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Simulates a queueing model, also what no formula covers (docs/models/simulation.md).

    Shape: a dict; ``simulation`` has ``classes`` and ``stations``, each number with ``center`` and ``half_width``.

    Units: seconds and 1/s. ``until`` is the relative half-width at which it stops (``"1%"``).

    Source: independent replications or batch means with 95 % intervals; the same seed gives the same answer.

    >>> model = {"arrival_rate_per_s": 100, "stations": [{"name": "server", "service_time_s": 0.005}]}
    >>> answer = simulate(model, seed=1, until="5%")
    >>> answer["accuracy"]
    'estimate'
    """
    options = {"seed": seed, "replications": replications, "until": until, "threads": threads}
    return _of_model(model, {**options, "solver": "simulation", "most-customers": most_customers})


def fit(what: str, data: Data, **options: Any) -> dict[str, Any]:
    """Fits ``"usl"``, ``"demands"``, ``"distribution"`` or ``"map"`` to measurements (docs/models/fitting.md).

    ``data`` is a frame, a dict of columns, or the path of a CSV file; ``options`` are the flags of ``kendall fit``.

    Shape: a dict, each parameter with its estimate and interval.

    Units: times in seconds unless ``unit="ms"``, rates in 1/s, utilizations as shares.

    Source: the Universal Scalability Law [Gunther07]; demands by non-negative regression [LZGS84 §12].

    >>> loads = [1, 2, 4, 8, 16]
    >>> rates = [100 * n / (1 + 0.05 * (n - 1)) for n in loads]
    >>> law = fit("usl", {"clients": loads, "throughput": rates}, amdahl=True)
    >>> round(law["alpha"]["value"], 4)
    0.05
    """
    with _table(data) as path:
        return _call(["fit", what, path, *_flags(options)], {path: "data"})


def design(kind: str, factors: Mapping[str, Iterable[Any]], *, frames: Library | None = None, **options: Any) -> Any:
    """The runs of a factorial design in their random order, as ``kendall design new`` (docs/methodology.md).

    ``kind`` is ``"full"``, ``"2kr"``, ``"fractional"``, ``"plackett-burman"``, ``"central-composite"``, …

    Shape: a frame with a row a run, a column a factor and ``order``, and an empty column ``value`` to be measured.

    Units: those of the levels.

    Source: [Jain91 §16–19]; each repetition has every configuration once, in an order that the seed determines.

    >>> runs = design("2kr", {"servers": [2, 3], "workers": [8, 32]}, replications=2, seed=1)
    >>> len(runs)
    8
    """
    for name, levels in factors.items():
        # The command's words are NAME=LEVEL,LEVEL: these would silently be other names and levels.
        if isinstance(levels, str) or any(sign in str(name) for sign in ",=") or any("," in str(level) for level in levels):
            raise KendallError(f"factor {name!r}: {levels!r}: levels are a list without commas in them, a name has no , or =", 2)
    words = [f"{name}={_level(list(levels))}" for name, levels in factors.items()]
    text = _text(["design", "new", "--kind", kind, "--format", "csv", *_flags({"factor": words, **options})], {})
    rows = list(_csv.DictReader(text.splitlines()))
    return frame([{key: _number(cell) for key, cell in row.items()} for row in rows], frames)


def analyze(data: Data, *, response: str = "value", **options: Any) -> dict[str, Any]:
    """Effects of a measured design with their intervals, as ``kendall design analyze``.

    Shape: a dict with ``effects``, the allocation of variation, and the checks of assumptions.

    Units: those of the response.

    Source: [Jain91 §17–18].

    >>> runs = {"a": [1, 2, 1, 2] * 2, "b": [1, 1, 2, 2] * 2, "value": [10, 20, 12, 22, 10.2, 19.8, 12.1, 21.9]}
    >>> analyze(runs, model="additive")["layout"]["runs"]
    8
    """
    with _table(data) as path:
        return _call(["design", "analyze", path, *_flags({"response": response, **options})], {path: "data"})


def predict(results: Folder, what_if: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Predicts another configuration from the runs of a study, as ``kendall predict`` (docs/predict.md).

    ``what_if`` has keys of the study file; a list, or text such as ``"10..300"``, gives a curve. ``options`` are
    ``objective``, ``carry``, ``cost``, ``points``, ``most_foreign``, ``keep``, ``against``.

    Shape: a dict with ``answers``, one a point, each number with its 95 % prediction interval for one run.

    Units: seconds and 1/s. Source: the calibrated model of docs/models/twin.md.
    """
    words = [f"{key}={_level(value)}" for key, value in (what_if or {}).items()]
    return _call(["predict", _path(results), *_flags({"what_if": words, **options})], {})


class Results(Mapping[str, Any]):
    """Tables of a folder of results, each read when it is asked for: ``report/NAME`` and ``stored/NAME``.

    Columns are named with their unit; :meth:`units` has them by column. ``NAME`` alone is of the report first.
    """

    def __init__(self, folder: Folder, frames: Library | None = None) -> None:
        self.folder = Path(folder)
        self._frames = frames
        self._tables = _native_call(lambda: _native.Tables(self.folder))
        self._names = _native_call(self._tables.names)

    def __getitem__(self, name: str) -> Any:
        columns = self._read(name)
        return from_columns({column: values for column, _, values in columns}, self._frames)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"kendall.read({str(self.folder)!r}): {', '.join(self._names)}"

    def units(self, name: str) -> dict[str, str]:
        """Units of the columns of a table that have one."""
        return {column: unit for column, unit, _ in self._read(name) if unit is not None}

    def _read(self, name: str) -> list[tuple[str, str | None, list[Any]]]:
        whole = next((n for n in (name, f"report/{name}", f"stored/{name}") if n in self._names), name)
        return _native_call(lambda: self._tables.read(whole))


def read(results: Folder, *, frames: Library | None = None) -> Results:
    """The tables of stored results as frames (docs/results.md).

    ``frames`` is ``"pandas"`` or ``"polars"``; without it the one that is installed, pandas first.

    Shape: a mapping from names of tables to frames, a row each as docs/results.md says.

    Units: in the names of columns; times in ``stored/…`` are integer nanoseconds where these end in ``_ns``.

    Source: docs/methodology.md, which says how each number is made.

    >>> read("no-such-folder")
    Traceback (most recent call last):
    kendall.KendallError: no results in no-such-folder: ...
    """
    return Results(results, frames)


def run(
    study: Folder, out: Folder, changed: Mapping[str, Any] | None = None, *, frames: Library | None = None
) -> Results:
    """Runs a study with the program, as ``kendall run STUDY --out DIR``, and reads its results.

    ``changed`` replaces keys of the study file, such as ``{"measure.duration": "5s"}``.

    Shape and units: as :func:`read`. Source: docs/methodology.md.
    """
    words = [str(program()), "run", _path(study), "--out", _path(out)]
    words += [f"--set={key}={_json.dumps(value, default=_known)}" for key, value in (changed or {}).items()]
    done = _subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4, 5):
        raise KendallError(done.stderr.strip().removeprefix("error: "), done.returncode)
    if done.returncode != 0:
        # There are results: of runs of which some were rejected, or that do not meet what the study states.
        _warnings.warn(done.stderr.strip(), stacklevel=2)
    return read(out, frames=frames)


def program() -> Path:
    """The program that this package brings, or the first ``kendall`` of the path."""
    # Of an environment, of `pip install --user` and of `pip install --target`.
    user = _sysconfig.get_path("scripts", _sysconfig.get_preferred_scheme("user"))
    folders = [Path(_sysconfig.get_path("scripts")), Path(user), Path(__file__).parents[1] / "bin"]
    beside = [folder / "kendall" for folder in folders]
    found = next((path for path in beside if path.is_file()), None) or _shutil.which("kendall")
    if found is None:
        raise FileNotFoundError(f"no program: neither {', '.join(map(str, beside))} nor a `kendall` on the path")
    return Path(found)


def _of_model(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(model, Mapping):
        return _call(["solve", _path(model), *_flags(options)], {})
    with _tempfile.TemporaryDirectory() as folder:
        path = _os.path.join(folder, "model.json")
        try:
            Path(path).write_text(_json.dumps(model, default=_known, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise KendallError(f"the model: {error}", 2) from None
        # A model in one line: its number says nothing.
        return _call(["solve", path, *_flags(options)], {f"{path}:1: ": "", f"{path}: ": "", path: "the model"})


class _table:
    """The path of a CSV file with these columns."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._folder: _tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> str:
        if isinstance(self._data, (str, _os.PathLike)):
            return _path(self._data)
        columns = to_columns(self._data)
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise KendallError(f"columns of different lengths: {lengths}", 2)
        self._folder = _tempfile.TemporaryDirectory()
        path = _os.path.join(self._folder.name, "data.csv")
        with open(path, "w", newline="") as file:
            writer = _csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
        return path

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _path(path: Folder) -> str:
    """A path as a word of a command, which takes none for a flag."""
    word = _os.fspath(path)
    return f"./{word}" if word.startswith("-") else word


def _flags(options: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in options.items():
        value = _plain(value)
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, Mapping):
            words += [f"{flag}={key}={one}" for key, one in value.items()]
        elif isinstance(value, (list, tuple)):
            words += [f"{flag}={one}" for one in value]
        elif value is not None and value is not False:
            words.append(f"{flag}={value}")
    return words


def _plain(value: Any) -> Any:
    """A value of numpy, pandas or polars as one of Python's; others as they are."""
    make = getattr(value, "tolist", None) or getattr(value, "to_list", None)
    return make() if make else value


def _known(value: Any) -> Any:
    """What stands for a value that JSON does not have."""
    plain = _plain(value)
    if plain is value:
        raise TypeError(f"{value!r} is neither a number, a text, a list nor a dict")
    return plain


def _level(value: Any) -> str:
    value = _plain(value)
    return ",".join(str(one) for one in value) if isinstance(value, (list, tuple, range)) else str(value)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None


def _call(words: list[str], shown: Mapping[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = _json.loads(_text([*words, "--format", "json"], shown))
    return answer


def _text(words: list[str], shown: Mapping[str, str]) -> str:
    """What a command prints; ``shown`` has what stands for temporary paths."""
    try:
        text, exit_code, is_error = _native.calculate(words)
    except UnicodeEncodeError as error:
        raise KendallError(f"{error.object!r} is not UTF-8", 2) from None
    if is_error:
        text = text.split("\n\nFor more information, try")[0]
        for path, name in shown.items():
            text = text.replace(path, name)
        raise KendallError(text, exit_code)
    if exit_code != 0:
        raise CheckFailed(_json.loads(text))
    return text


def _native_call(call: Callable[[], _Found]) -> _Found:
    try:
        return call()
    except RuntimeError as error:
        raise KendallError(str(error), 2) from None
