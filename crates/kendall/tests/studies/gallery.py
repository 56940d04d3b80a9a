"""What `scripts/gallery` does about order, busy machines, kills and changed files, with a program that only pretends.

Usage: gallery.py REPOSITORY
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Answers dry runs by what stands in the study file, and runs by writing a report. What it was asked stands in `calls`.
PROGRAM = r'''#!/usr/bin/env python3
import json, os, pathlib, sqlite3, sys, time
words = sys.argv[1:]
here = pathlib.Path(__file__).parent
if words[0] == "report":
    sys.exit(0)
text = pathlib.Path(words[1]).read_text()
study = json.loads(text.splitlines()[0].removeprefix("# "))
if "--dry-run" in words:
    runs = [{}] * study["runs"]
    print(json.dumps({"runs": runs, "effective": {"measure": {"duration": study["length"], "repetitions": 3, "warm_up": "auto"},
          "workload": {}, "factors": [], "design": {}}}))
    sys.exit(0)
folder = pathlib.Path(words[words.index("--out") + 1])
with (here / "calls").open("a") as calls:
    print(f"{pathlib.Path(words[1]).stem} {folder.name}", file=calls)
folder.mkdir(parents=True, exist_ok=True)
was = folder / "study"
if was.exists() and was.read_text() != text:
    sys.exit(2)
was.write_text(text)
time.sleep(study.get("sleep", 0))
first = not (here / f"{folder.name}-ran").exists()
(here / f"{folder.name}-ran").touch()
noisy = study.get("noisy", 0) if first else 0
with sqlite3.connect(folder / "results.db") as results:
    results.execute("CREATE TABLE IF NOT EXISTS runs (status TEXT, caveats TEXT)")
    for number in range(study["runs"]):
        caveats = [{"caveat": "noisy-neighbor", "steal_share": 0.1}] if number < noisy else []
        results.execute("INSERT INTO runs VALUES ('done', ?)", [json.dumps(caveats)])
answer = {"answer": "Forty.", "told": study.get("told", True), "trust": {"level": study.get("trust", "good"), "why": ""}}
rows = [{"status": "done"}] * study["runs"]
table = {"kind": "table", "content": {"id": "runs", "rows": rows, "columns": [], "caption": ""}}
report = {"title": folder.name, "byline": f"{study['runs']} runs · first run 2026-11-29 10:00 UTC", "answer": answer,
          "summary": [], "sections": [{"id": "setup", "blocks": [table]}]}
(folder / "report.json").write_text(json.dumps(report))
(folder / "report.html").write_text("<html>")
'''
# The gallery on a machine that is as busy as is said, the last of it for ever. Sleeping moves the clock.
DRIVER = '''
import importlib.machinery, importlib.util, sys, types
loader = importlib.machinery.SourceFileLoader("gallery", "scripts/gallery")
gallery = importlib.util.module_from_spec(importlib.util.spec_from_loader("gallery", loader))
loader.exec_module(gallery)
busy = {busy}
gallery.busy_share = lambda: busy.pop(0) if len(busy) > 1 else busy[0]
slept, monotonic = [], gallery.time.monotonic
gallery.time = types.SimpleNamespace(monotonic=lambda: monotonic() + sum(slept), sleep=slept.append)
sys.argv = ["gallery", *{arguments!r}]
gallery.main()
'''


class Place:
    """A repository with studies of its own."""

    def __init__(self, repository, studies, pages=None, state=None):
        self.root = pathlib.Path(tempfile.mkdtemp())
        (self.root / "scripts").mkdir()
        (self.root / "docs/studies").mkdir(parents=True)
        shutil.copy(repository / "scripts/gallery", self.root / "scripts/gallery")
        (self.root / "studies").mkdir()
        for name, study in studies.items():
            self.write(name, study)
        blocks = [f"<!-- gallery: {name} -->\n{text}\n<!-- end -->\n" for name, text in (pages or {}).items()]
        (self.root / "docs/studies/page.md").write_text("\n".join(blocks))
        if state:
            (self.root / "studies/gallery.json").write_text(json.dumps(state))
        self.program = self.root / "kendall"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def write(self, name, study):
        file = self.root / f"studies/{name}.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("# " + json.dumps({"runs": 3, "length": "60s", **study}) + "\n")

    def start(self, *arguments, busy=(0.0,)):
        driver = DRIVER.format(busy=list(busy), arguments=list(arguments))
        return subprocess.Popen([sys.executable, "-c", driver], cwd=self.root, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env={**os.environ, "KENDALL": str(self.program)})

    def run(self, *arguments, busy=(0.0,)):
        said, _ = self.start(*arguments, busy=busy).communicate(timeout=300)
        return said

    def calls(self):
        file = self.root / "calls"
        return file.read_text().split("\n")[:-1] if file.exists() else []

    def state(self):
        file = self.root / "studies/gallery.json"
        return json.loads(file.read_text()) if file.exists() else {}


def reached(told=True, trust="good"):
    return {"length_s": 3, "repetitions": 3, "every": 1, "measured_s": 9, "published_s": 180, "run_s": 3.5, "told": told,
            "trust": trust, "first_run": "2026-11-28"}


def what_is_missed_most_runs_first(repository):
    studies = {f"compute/{name}": {"runs": runs} for name, runs in
               [("a-answered", 3), ("b-page", 3), ("c-cannot", 6), ("d-none", 9), ("e-spoilt", 3)]}
    pages = {"compute/a-answered": "Here: 40/s.", "compute/b-page": "Here: 30/s.", "compute/c-cannot": "Here: Cannot tell what.",
             "compute/d-none": "",
             "compute/e-spoilt": "Here: 20/s."}
    state = {"compute/a-answered": reached(), "compute/e-spoilt": reached(trust="bad")}
    place = Place(repository, studies, pages, state)
    said = place.run("--plan", "--minutes", "600")
    order = [line.split(":")[0].split("/")[1] for line in said.split("\n") if line.startswith("  compute/")]
    assert order == ["e-spoilt", "c-cannot", "d-none", "b-page", "a-answered"], said
    # Where time is short, those that are missed alone; what is left lifts them and nothing else.
    said = place.run("--plan", "--minutes", "1.5")
    assert "c-cannot" in said and "a-answered" not in said, said


def a_busy_machine_gives_no_answer(repository):
    place = Place(repository, {"compute/noisy": {"length": "3s", "noisy": 2}})
    said = place.run("--minutes", "10", busy=[0.9, 0.8, 0.0])
    assert "waits: other programs use 90 %" in said and "disturbed 2 of 3 runs" in said, said
    assert place.calls() == ["noisy compute-noisy-3x3s"] * 2, said
    assert place.state()["compute/noisy"]["told"], said
    kept = place.root / "results/gallery/compute-noisy-3x3s-disturbed"
    assert (kept / "results.db").exists()
    place = Place(repository, {"compute/noisy": {}})
    said = place.run("--minutes", "10", busy=[0.9])
    assert not place.calls() and not place.state() and "not quiet" in said, said


def a_killed_gallery_goes_on(repository):
    place = Place(repository, {"compute/long": {"length": "3s", "sleep": 30}})
    child = place.start("--minutes", "10")
    while not place.calls():
        time.sleep(0.02)
    assert "another gallery" in place.run("--minutes", "10")
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    folder = place.root / "results/gallery/compute-long-3x3s"
    text = (place.root / "studies/compute/long.toml").read_text()
    begun = json.loads(text.splitlines()[0].removeprefix("# "))
    assert begun["sleep"] == 30 and not place.state()
    # The same file and the same folder, which the program completes.
    (place.root / "kendall").write_text(PROGRAM.replace('study.get("sleep", 0)', "0"))
    said = place.run("--minutes", "10")
    assert place.calls() == ["long compute-long-3x3s"] * 2 and (folder / "report.json").exists(), said
    assert place.state()["compute/long"]["length_s"] == 3, said


def a_changed_file_begins_anew(repository):
    place = Place(repository, {"compute/one": {"length": "3s"}})
    folder = place.root / "results/gallery/compute-one-3x3s"
    folder.mkdir(parents=True)
    (folder / "study").write_text("an earlier form")
    said = place.run("--minutes", "10")
    assert (folder.with_name(folder.name + "-older") / "study").read_text() == "an earlier form", said
    assert place.state()["compute/one"]["told"], said


def main():
    repository = pathlib.Path(sys.argv[1])
    what_is_missed_most_runs_first(repository)
    a_busy_machine_gives_no_answer(repository)
    a_killed_gallery_goes_on(repository)
    a_changed_file_begins_anew(repository)


main()
