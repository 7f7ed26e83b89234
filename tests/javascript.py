"""Functions of the pages' scripts, called in node."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess

import pytest

from dask_diag.views.assets import call

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None, reason="no node is installed (apt-get install nodejs)"
)

# JSON has no NaN and no infinity; both ways they travel as objects.
SCRIPT = """
const restored = (value) => {
    if (Array.isArray(value)) return value.map(restored)
    if (value === null || typeof value !== "object") return value
    if ("number" in value) return Number(value.number)
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, restored(item)]))
}
const portable = (value) => {
    if (typeof value === "number" && !Number.isFinite(value)) return {number: String(value)}
    if (value === null || typeof value !== "object") return value
    if (Array.isArray(value) || ArrayBuffer.isView(value)) return Array.from(value, portable)
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, portable(item)]))
}
const results_of = ({calls, body}) => {
    const run = new Function("args", body)
    return calls.map((args) => {
        const given = restored(args)
        return portable([run(given) ?? null, given])
    })
}
const answer_to = (line) => {
    try {
        return {results: results_of(JSON.parse(line))}
    } catch (error) {
        return {error: error.stack}
    }
}
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
    process.stdout.write(JSON.stringify(answer_to(line)) + "\\n")
})
"""


@functools.cache
def _node():
    """A node that answers a line with a line: to start one takes longer than most functions."""
    process = subprocess.Popen(
        [NODE, "-e", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd="/",
    )
    # It ends as soon as there is nothing more to read.
    atexit.register(process.communicate)
    return process


def results_of(body, calls=()):
    """Of each call of a function with this body the result and the arguments; it has to parse."""
    node = _node()
    try:
        node.stdin.write(json.dumps({"calls": calls, "body": body}, allow_nan=False) + "\n")
        node.stdin.flush()
        answer = json.loads(node.stdout.readline())
    except BaseException:
        # What it would answer later is no answer to the next question.
        node.kill()
        _node.cache_clear()
        raise
    assert "error" not in answer, answer["error"]
    return answer["results"]


def run_javascript(module, function, *calls):
    """What a function of a module returns, for each list of arguments."""
    return [result for result, _ in _run(module, function, calls)]


def changed_by_javascript(module, function, *arguments):
    """The arguments as they are after a function of a module was called with them."""
    ((_, changed),) = _run(module, function, [list(arguments)])
    return changed


def _run(module, function, calls):
    """Of each call the result and the arguments; the module is linked as it is for a page."""
    return _restored(results_of(call(module, function, "...args"), _portable(list(calls))))


def _portable(value):
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return {"number": {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]}
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_portable(item) for item in value]
    return value


def _restored(value):
    if isinstance(value, dict):
        if set(value) == {"number"}:
            return float(value["number"])
        return {key: _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value
