"""What tasks of planted programs do beside collectors, event loops and parsers."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from typing import Any


def parse_in_cycles(count: int) -> int:
    """Make objects that only the collector can free."""
    made = []
    for number in range(count):
        record: dict[str, Any] = {"number": number}
        record["self"] = record
        made.append(record)
    return len(made)


def read_records(count: int) -> list[dict[str, Any]]:
    """Make many small objects, none of them in a cycle."""
    return [{"number": number, "values": [number]} for number in range(count)]


_loops: list[asyncio.AbstractEventLoop] = []
_lock = threading.Lock()


def loop_of_process() -> asyncio.AbstractEventLoop:
    """The one event loop of this process, on a thread of its own, as of fsspec."""
    with _lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, daemon=True, name="reader").start()
            _loops.append(loop)
    return _loops[0]


async def fetch(waits: float, numbers: int) -> int:
    """Wait, and then compute on the loop's thread."""
    await asyncio.sleep(waits)
    return sum(number * number for number in range(numbers))


def read(waits: float, numbers: int) -> int:
    """Read through the loop."""
    fetched = asyncio.run_coroutine_threadsafe(fetch(waits, numbers), loop_of_process())
    return fetched.result()


DATA = memoryview(bytes(24_000_000))


def hash_of(data: bytes | memoryview) -> str:
    """Compute without the GIL."""
    return hashlib.sha256(data).hexdigest()


async def fetch_hash(number: int, in_task: bool) -> tuple[memoryview, str]:
    """Wait, and then hash on the loop's thread unless the task does."""
    await asyncio.sleep(0.002)
    data = DATA[number:]
    return data, "" if in_task else hash_of(data)


def read_hash(number: int, in_task: bool) -> str:
    """Read through the loop, and hash here or there."""
    fetched = asyncio.run_coroutine_threadsafe(fetch_hash(number, in_task), loop_of_process())
    data, found = fetched.result()
    return hash_of(data) if in_task else found


def times_of(texts: list[str], form: str) -> int:
    """Parse texts as times."""
    import pandas as pd

    return len(pd.to_datetime(pd.Series(texts, dtype=object), format=form, dayfirst=True))
