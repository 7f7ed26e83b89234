"""Record every story, measure what its change gains, and write its page: ``make gallery``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import dask_diag
from dask_diag import findings, load, save
from dask_diag.columns import Categorical
from docs.gallery.contact_sheet import write_contact_sheet
from docs.gallery.pages import Advised, Measured, renew_summary, write_index, write_page
from docs.gallery.stories import STORIES, Story

ROOT = Path(__file__).parents[2]
PAIRS = 5
_MEASURE = """
import json, os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
wall = time.perf_counter() - start
print(json.dumps([os.waitstatus_to_exitcode(status), wall, usage.ru_maxrss]))
"""
"""Run by a process of its own, which is small: a process starts with the peak of its parent."""
_PACKAGES, _STANDARD_LIBRARY = "python/lib/python3/site-packages/", "python/lib/python3/"
FOLDERS = {
    f"{sysconfig.get_path('purelib')}/": _PACKAGES,
    f"{ROOT}/": _PACKAGES,
    f"{sysconfig.get_path('stdlib')}/": _STANDARD_LIBRARY,
}
"""Where modules are, the innermost first, and the names of these folders in recordings."""


def main() -> None:
    """Make the stories that are named; all, and the contact sheet, if none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="stories; all by default")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="runs before and after the change")
    parser.add_argument("--sheet", action="store_true", help="make the contact sheet alone")
    parser.add_argument("--summaries", action="store_true", help="renew the summaries alone")
    arguments = parser.parse_args()
    if arguments.summaries:
        for story in STORIES:
            renew_summary(story)
        return
    if arguments.sheet:
        write_contact_sheet(STORIES)
        return
    for story in STORIES:
        if not arguments.names or story.name in arguments.names:
            make(story, arguments.pairs)
            print(f"made: {story.title}", flush=True)
    write_index(STORIES)
    if not arguments.names:
        write_contact_sheet(STORIES)


def make(story: Story, pairs: int) -> None:
    """Record a story and its change, measure both without a profiler, and write the page.

    Where the story goes further than its finding, what that advises is measured beside them.
    """
    with folder_of(story) as folder:
        for name, command in ((story.name, story.before), (f"{story.name}_after", story.after)):
            recorded(command, folder, ROOT / "docs" / "stories" / f"{name}.diag")
        advice = advice_of(story)
        commands = [story.before, story.after, *(command for _, command in advice)]
        runs: list[list[tuple[float, float]]] = [[] for _ in commands]
        for _ in range(pairs):
            for command, of_command in zip(commands, runs, strict=True):
                of_command.append(measured(command, folder))
    before, after, *others = (Measured.of(story, of_command) for of_command in runs)
    advised = [Advised(*one, took) for one, took in zip(advice, others, strict=True)]
    write_page(story, before, after, *advised)


def advice_of(story: Story) -> list[tuple[int, str]]:
    """How much larger chunks are to be by the story's finding, and the command; or nothing."""
    if story.advised is None:
        return []
    reported = findings(load(ROOT / "docs" / "stories" / f"{story.name}.diag"))
    advice = [story.advised_by(finding) for finding in reported if finding.code == story.code]
    if len(advice) != 1 or advice[0] is None:
        raise RuntimeError(f"{story.name}: no finding {story.code} that says how large chunks are")
    return [advice[0]]


@contextlib.contextmanager
def folder_of(story: Story) -> Iterator[Path]:
    """A folder with the script alone: pages then show its name, not where it was."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(ROOT / "examples" / story.script, name)
        yield Path(name)


def measured(command: str, folder: Path) -> tuple[float, float]:
    """Wall seconds and peak memory, in bytes, of one run without a profiler."""
    words, variables = parsed(command)
    process = subprocess.run(
        [sys.executable, "-S", "-c", _MEASURE, sys.executable, *words],
        cwd=folder,
        env=variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    status, wall, peak = json.loads(process.stdout)
    if status:
        raise RuntimeError(f"{command} ended with status {status}")
    return wall, peak * (1 if sys.platform == "darwin" else 1024)


def recorded(command: str, folder: Path, target: Path) -> None:
    """Record one run, and save it without the folders of this machine."""
    words, variables = parsed(command)
    subprocess.run(
        [sys.executable, "-m", "dask_diag", "run", "--quiet", "--output", "run.diag", *words],
        cwd=folder,
        env=variables,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    recording = load(folder / "run.diag")
    (folder / "run.diag").unlink()
    target.unlink(missing_ok=True)
    save(without_folders(recording, folder), target)


def without_folders(recording: dask_diag.Recording, folder: Path) -> dask_diag.Recording:
    """The same without this machine's folders in the names of source files."""
    folders = {f"{folder.resolve()}/": "", **FOLDERS}
    made = {}
    for table in "frames", "lines":
        rows = getattr(recording, table)
        columns = {name: rows[name] for name in rows.columns}
        names = [renamed(name, folders) for name in rows.file.values]
        columns["file"] = Categorical(rows.file.codes, names)
        made[table] = type(rows)(columns)
    return replace(recording, **made)


def renamed(name: str, folders: Mapping[str, str]) -> str:
    """A file's name with another name of the first of these folders that it is in."""
    inside = (folder for folder in folders if name.startswith(folder))
    folder = next(inside, "")
    return folders.get(folder, "") + name.removeprefix(folder)


def parsed(command: str) -> tuple[list[str], dict[str, str]]:
    """What follows ``python`` in a command, and the environment with the variables before it."""
    before, after = command.split("python ", 1)
    variables = dict(word.split("=", 1) for word in before.split())
    return after.split(), {**os.environ, **variables, "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    main()
