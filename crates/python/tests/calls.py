"""What the package refuses, and that a calculation lets other threads go on."""

import threading

import kendall

MODEL = {"arrival_rate_per_s": 100, "stations": [{"name": "server", "service_time_s": 0.005}]}


def refused(call, *words):
    try:
        call()
    except kendall.KendallError as error:
        for word in words:
            assert word in str(error), f"no {word!r} in {error}"
        return error
    raise AssertionError("was not refused")


error = refused(lambda: kendall.solve({**MODEL, "populatoin": 3}), "populatoin", "population")
assert error.exit_code == 2 and "/" not in str(error), error
refused(lambda: kendall.solve("no-such.toml"), "no-such.toml")
refused(lambda: kendall.solve(MODEL, solver="magic"), "magic")
refused(lambda: kendall.fit("usl", {"clients": [1, 2], "throughput": ["x", 3]}), "data:2", "throughput")
refused(lambda: kendall.fit("usl", {"clients": [1], "throughput": [2]}, no_such_flag=1), "--no-such-flag")
refused(lambda: kendall.design("2kr", {"a": [1]}), "a")
refused(lambda: kendall.design("full", {"a": ["x,y", "z"]}), "x,y", "comma")
refused(lambda: kendall.design("full", {"a=b": [1, 2]}), "a=b")
refused(lambda: kendall.design("full", {"a": "xy", "b": [1, 2]}), "'xy'")
refused(lambda: kendall.read("--help"), "no results in --help")
refused(lambda: kendall.predict("--help"), "no results in ./--help")
refused(lambda: kendall.solve("--help"), "./--help")
refused(lambda: kendall.solve("a\udcff.toml"), "is not UTF-8")
refused(lambda: kendall.run("--help", "no-such-folder"), "./--help")
assert "For more information" not in str(refused(lambda: kendall.simulate(MODEL, seed=-1), "--seed"))
refused(lambda: kendall.predict("no-such-folder", {"workload.clients": 3}), "no results in no-such-folder")
refused(lambda: kendall.fit("usl", {"clients": [1, 2], "throughput": [2]}), "different lengths", "'clients': 2")
refused(lambda: kendall.solve({**MODEL, "arrival_rate_per_s": float("nan")}), "the model", "float")
refused(lambda: kendall.solve({**MODEL, "arrival_rate_per_s": {1, 2}}), "the model", "{1, 2}")
missed = refused(lambda: kendall.solve({"model": {"kind": "M/M/1", "arrival_rate_per_s": 1.0, "service_rate_per_s": 2.0},
                                        "outputs": {"utilization": {"value": 0.7}}}), "check")
assert isinstance(missed, kendall.CheckFailed) and missed.exit_code == 4

# Another thread goes on while one simulates: it ends first, though it began later.
ended = []
slow = threading.Thread(target=lambda: (kendall.simulate(MODEL, seed=1, until="2%", threads=1), ended.append("slow")))
slow.start()
kendall.solve(MODEL)
ended.append("fast")
slow.join()
assert ended == ["fast", "slow"], ended

# Values of numpy where Python's stand.
import numpy

of_numpy = kendall.solve({"population": numpy.int64(3), "stations": [{"name": "server", "service_time_s": numpy.float64(0.5)}]},
                         percentiles=numpy.array([0.5, 0.9]))
assert of_numpy["accuracy"] == "exact", of_numpy
assert len(kendall.design("full", {"workers": numpy.arange(1, 4)}, replications=numpy.int64(2), seed=1)) == 6

# Frames of both libraries, from both.
import pandas
import polars

sweep = kendall.solve(MODEL, sweep={"arrival_rate_per_s": (50, 150, 50)}, frames="polars")
assert isinstance(sweep, polars.DataFrame) and sweep.height == 3, sweep
for data in (pandas.DataFrame, polars.DataFrame):
    loads = [1, 2, 4, 8, 16]
    law = kendall.fit("usl", data({"clients": loads, "throughput": [90 * n / (1 + 0.1 * (n - 1)) for n in loads]}), amdahl=True)
    assert abs(law["alpha"]["value"] - 0.1) < 1e-6, law

# An estimate without an interval, of each library.
for library in ("matplotlib", "altair"):
    rows = polars.DataFrame({"n": [1, 2], "x_s": [1.0, 2.0], "x_s_low": [None, 1.5], "x_s_high": [None, 2.5]})
    assert kendall.figure(rows, "n", "x_s", library=library)

# The program of `pip install --user`, which is on no path.
import os
import pathlib
import subprocess
import sys

home = pathlib.Path("user").absolute()
(home / "bin").mkdir(parents=True)
(home / "bin/kendall").touch()
there = subprocess.run([sys.executable, "-c", "import kendall; print(kendall.program())"], capture_output=True, text=True, check=True,
                       env={**os.environ, "PYTHONUSERBASE": str(home), "PATH": ""})
assert there.stdout.strip() == str(home / "bin/kendall"), there
