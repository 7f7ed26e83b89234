"""The stories: a program each, and one change of the kind that its finding advises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dask_diag import Finding

__all__ = ["STORIES", "Story"]


@dataclass(frozen=True)
class Story:
    """A program, a change, and what is to be learned.

    Attributes
    ----------
    name : str
        Of its page, its recording and its report.
    title : str
    script : str
        In the folder ``examples``.
    code : str
        The finding that it is about.
    before, after : str
        How it is called: variables of the environment, the script, its arguments.
    seen : str
        What the program does, and what its user saw.
    changed : str
        What was changed, and why that helps.
    gains : str
        What is compared: ``seconds`` or ``memory``.
    advised : callable, optional
        How the program is called with the change that the finding advises, where `after` goes
        further: a function of how many times as large chunks are to be.
    further : str
        Why it gains more to go further.
    """

    name: str
    title: str
    script: str
    code: str
    before: str
    after: str
    seen: str
    changed: str
    gains: str = "seconds"
    advised: Callable[[int], str] | None = None
    further: str = ""

    def advised_by(self, finding: Finding) -> tuple[int, str] | None:
        """How much larger the finding advises chunks to be, and the command that does so."""
        times = re.search(r"chunks about ([\d,]+) times as large", finding.advice)
        if self.advised is None or times is None:
            return None
        factor = int(times[1].replace(",", ""))
        return factor, self.advised(factor)


STORIES = (
    Story(
        "qr",
        "QR with BLAS threads",
        "qr.py",
        "thread-oversubscription",
        "python qr.py",
        "OPENBLAS_NUM_THREADS=1 python qr.py",
        "A QR decomposition of ten blocks. Every CPU is busy, and yet it is slow: each task calls "
        "OpenBLAS, which starts threads of its own, as many as there are CPUs.",
        "One thread for OpenBLAS. dask's workers already use every CPU.",
    ),
    Story(
        "climatology",
        "Climatology in small chunks",
        "stories/climatology.py",
        "tasks-too-small",
        "python climatology.py",
        "python climatology.py --days 90",
        "Monthly means of forty years of daily fields. Each chunk has six days, as the files had. "
        "The scheduler needs about as long for a task as the task itself.",
        "Chunks of ninety days: the same sums in a fifteenth of the tasks.",
    ),
    Story(
        "groupby",
        "A groupby over many small partitions",
        "stories/groupby.py",
        "tasks-too-small",
        "python groupby.py",
        "python groupby.py --partitions 16",
        "A mean by name over four million rows, read from a thousand small files. Each partition "
        "of 4,000 rows is handled by several tasks.",
        "Sixteen partitions. With real files: ``blocksize=`` or ``aggregate_files=`` when reading, "
        "or ``repartition`` right after it.",
        advised=lambda times: f"python groupby.py --partitions {round(1_000 / times)}",
        further="Besides overhead, each partition has Python code of pandas, which holds the GIL: "
        "with fewer partitions there is less of that, too.",
    ),
    Story(
        "images",
        "A filter over tiles of an image",
        "stories/images.py",
        "tasks-too-small",
        "python images.py",
        "python images.py --tile 1024",
        "A smoothing filter over an image in tiles of 128 by 128 pixels. Each tile needs the "
        "borders of eight others: most tasks cut and join borders.",
        "Tiles of 1,024 by 1,024 pixels: 16 tiles with few borders, in place of 1,024.",
        # Pixels on a side: a chunk is a tile.
        advised=lambda times: f"python images.py --tile {round(128 * times**0.5)}",
        further="Borders are cut and joined for each tile: with fewer tiles there is less of that, "
        "too.",
    ),
    Story(
        "word_count",
        "Word count in worker processes",
        "stories/word_count.py",
        "serialization-bound",
        "python word_count.py",
        "python word_count.py --send counts",
        "The most frequent words of 160 texts. Worker processes read the texts and send all words "
        "back, to be counted here: most of the time is pickling.",
        "Each process counts its own words. Only the counts travel.",
    ),
    Story(
        "collisions",
        "An analysis of files of very different sizes",
        "stories/collisions.py",
        "straggler",
        "python collisions.py",
        "python collisions.py --events 1000000",
        "A histogram over six files of collisions, as in an analysis of NanoAOD files. One file is "
        "as large as all others together. At the end one worker is idle.",
        "Large files are divided: no task has more than a million events.",
    ),
    Story(
        "download",
        "Downloads from a slow server",
        "stories/download.py",
        "too-few-threads",
        "python download.py",
        "python download.py --workers 16",
        "Sixty files from a server that takes a tenth of a second to answer. CPUs are idle all the "
        "time: dask starts as many threads as there are CPUs, and each waits.",
        "Sixteen threads. A thread that waits needs no CPU.",
    ),
    Story(
        "memory",
        "Memory that grows",
        "stories/memory.py",
        "memory-growth",
        "python memory.py",
        "python memory.py --cached 16",
        "Moments of a hundred batches of data. The function that reads them has a cache without a "
        "limit: memory grows with every batch.",
        "A cache of sixteen results.",
        gains="memory",
    ),
)
