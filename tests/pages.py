"""What a saved page holds, read without a browser and without the code that wrote it."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from functools import reduce

import numpy as np


def document(path):
    """The models of a page, by id."""
    page = path.read_text(errors="surrogatepass")
    body = page.split('<script type="application/json"')[1].split(">", 1)[1].split("</script>")[0]
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#34;", '"'), ("&#39;", "'")):
        body = body.replace(entity, character)
    models = []

    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "object" and "attributes" in node:
                models.append(node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(body.replace("&amp;", "&")))
    return models


def arguments_of(path, name):
    """The arguments of the first script of a page that has one of this name."""
    for model in document(path):
        if model["name"] == "CustomJS":
            args = plain(model["attributes"]["args"])
            if name in args:
                return args
    raise AssertionError(f"no script has {name}")


def plain(node):
    """Bokeh's JSON as Python's dicts, lists and bytes."""
    if isinstance(node, list):
        return [plain(value) for value in node]
    if isinstance(node, dict):
        if node.get("type") == "map":
            return {plain(key): plain(value) for key, value in node.get("entries", [])}
        if node.get("type") == "bytes":
            data = base64.b64decode(node["data"])
            return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        return {key: plain(value) for key, value in node.items()}
    return node


def unpacked(packed):
    """The columns that were packed."""
    letters = packed["data"].translate(str.maketrans(",.:/", "&<>`"))
    data, columns, at = zlib.decompress(base64.b85decode(letters)), {}, 0
    for name, length, width, signed in packed["layout"]:
        size = length * max(width, 1)
        part, at = data[at : at + size], at + size
        if width == 0:
            columns[name] = part.decode()
            continue
        planes = np.frombuffer(part, np.uint8).reshape(width, length).astype(np.int64)
        values = reduce(lambda sum_, n: sum_ + (planes[n] << (8 * n)), range(width), 0)
        columns[name] = np.where(values % 2, -(values + 1) // 2, values // 2) if signed else values
    assert at == len(data)
    return columns


def tasks_of(args):
    """The rows of tasks in a page: lane, start, stop, cpu (seconds), function, outcome."""
    columns, tick = unpacked(args["packed_tasks"]), args["tick"]
    rows, at = [], 0
    for lane, count in enumerate(columns["count"].tolist()):
        before = 0
        for row in range(at, at + count):
            start = before + int(columns["gap"][row])
            length = int(columns["length"][row])
            before = start + length
            left_out = max(0, length.bit_length() - 1 - 9)
            cpu = length - int(columns["rest"][row]) * 2**left_out
            rows.append(
                (
                    lane,
                    start * tick,
                    before * tick,
                    cpu * tick,
                    int(columns["function"][row]),
                    int(columns["outcome"][row]),
                )
            )
        at += count
    table = dict(
        zip(
            ("lane", "start", "stop", "cpu", "function", "outcome"),
            map(np.array, zip(*rows)),
        )
    )
    table["cpu"][columns["unknown"]] = np.nan
    return table


def keys_of(args, functions):
    """The keys, in the same order."""
    columns = unpacked(args["packed_keys"])
    patterns = [text.split("\x1f") for text in columns["patterns"].split("\x1e")]
    latest, rows_taken, sums, keys = {}, {}, {}, []
    for row, function in enumerate(functions.tolist()):
        pattern = latest[function] = latest.get(function, 0) + int(columns["pattern"][row])
        pieces = patterns[pattern]
        text = pieces[0]
        for slot, piece in enumerate(pieces[1:]):
            step = int(columns[f"numbers-{slot}"][rows_taken.get(slot, 0)])
            rows_taken[slot] = rows_taken.get(slot, 0) + 1
            sums[pattern, slot] = sums.get((pattern, slot), 0) + step
            text += str(sums[pattern, slot]) + piece
        keys.append(text)
    return keys
