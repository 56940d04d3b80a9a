"""Runs the cells of a notebook in their order, in one namespace, as a kernel does, and looks at what they made."""

import json
import os
import sys

import matplotlib

matplotlib.use("agg")
notebook, repository = sys.argv[1:]
os.environ["KENDALL_REPOSITORY"] = repository
cells = json.load(open(notebook))["cells"]
assert len(cells) == 20, len(cells)
names = {"__name__": "__main__", "display": lambda *_: None}
for number, cell in enumerate(cells):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)

import pandas
import polars

import kendall

results, drawn = names["results"], names["drawn"]
drawn.savefig("figure.png")
assert os.path.getsize("figure.png") > 5_000
for name in results:
    frame = results[name]
    assert isinstance(frame, pandas.DataFrame), name
stored = results["stored/operations"]
assert results.units("stored/operations")["mean_ns"] == "ns"
other = kendall.read(results.folder, frames="polars")["stored/operations"]
assert isinstance(other, polars.DataFrame) and other.height == len(stored) > 0
assert other["completed"].sum() == stored["completed"].sum()
