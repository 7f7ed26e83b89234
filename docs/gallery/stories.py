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
    recognized : str
        How a reader recognizes the same problem in another program.
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
    recognized: str = ""

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
        "A QR decomposition of ten blocks. All CPUs are busy, but the program is slow: each task "
        "calls OpenBLAS, which starts as many threads as the machine has CPUs.",
        "OpenBLAS uses one thread, because Dask's workers already use every CPU.",
        recognized="Tasks call linear algebra of NumPy or SciPy, all CPUs are busy, and the "
        "finding names a library such as OpenBLAS or MKL that uses more than one "
        "thread.",
    ),
    Story(
        "climatology",
        "Climatology in small chunks",
        "stories/climatology.py",
        "tasks-too-small",
        "python climatology.py",
        "python climatology.py --days 90",
        "Monthly means of forty years of daily fields. Each chunk contains six days, like the "
        "files. The program is slow because its tasks are so short "
        "that scheduling them takes a large part of the time.",
        "Each chunk contains ninety days: 15 times fewer chunks for the same sums.",
        recognized="The program runs thousands of tasks of less than a few milliseconds, and "
        "*scheduling overhead* is one of the longest parts of the bar *Wall time*. "
        "Chunks often have the size of the files or of one time step.",
    ),
    Story(
        "groupby",
        "A groupby over many small partitions",
        "stories/groupby.py",
        "tasks-too-small",
        "python groupby.py",
        "python groupby.py --partitions 16",
        "A mean by name over four million rows, read from a thousand small files. Several tasks "
        "process each partition of 4,000 rows.",
        "Sixteen partitions instead of a thousand. With real files, pass ``blocksize=`` or "
        "``aggregate_files=`` when you read them, or call ``repartition`` right after reading.",
        advised=lambda times: f"python groupby.py --partitions {round(1_000 / times)}",
        further="Each partition also runs Python code of pandas that holds the GIL. Fewer "
        "partitions run less of that code.",
        recognized="A dataframe has hundreds of partitions of a few thousand rows, often one per "
        "file, and the findings contain both ``tasks-too-small`` and ``gil-bound``.",
    ),
    Story(
        "images",
        "A filter over tiles of an image",
        "stories/images.py",
        "tasks-too-small",
        "python images.py",
        "python images.py --tile 1024",
        "A smoothing filter over an image in tiles of 128 by 128 pixels. Each tile needs the "
        "borders of eight neighbors, so most tasks cut and join borders.",
        "Tiles of 1,024 by 1,024 pixels: 16 tiles instead of 1,024, with fewer borders.",
        # Pixels on a side: a chunk is a tile.
        advised=lambda times: f"python images.py --tile {round(128 * times**0.5)}",
        further="Dask cuts and joins borders for each tile, so larger tiles need fewer of these "
        "tasks.",
        recognized="The program calls ``map_overlap`` or slices an array often, and most rows of "
        "the table of functions are ``getitem`` and ``concatenate``.",
    ),
    Story(
        "word_count",
        "Word count in worker processes",
        "stories/word_count.py",
        "serialization-bound",
        "python word_count.py",
        "python word_count.py --send counts",
        "The most frequent words of 160 texts. Worker processes read the texts and send all words "
        "back to the main process, which counts them. Pickling the words takes longer than "
        "reading the texts.",
        "Each process counts its own words and sends back only the counts.",
        recognized='The program uses ``scheduler="processes"``, as bags do by default, and '
        "*serialization* or *deserialization* is one of the longest parts of the bar "
        "*Wall time*.",
    ),
    Story(
        "collisions",
        "An analysis of files of very different sizes",
        "stories/collisions.py",
        "straggler",
        "python collisions.py",
        "python collisions.py --events 1000000",
        "A histogram over six files of collisions, as in an analysis of NanoAOD files. One file "
        "is five times as large as all others together. One worker processes that file while the "
        "other worker is idle.",
        "Large files are split: no task processes more than a million events.",
        recognized="The plot of workers shows one task that runs alone at the end. In the table "
        "of functions, the column *longest* shows a time far above the average of "
        "that function.",
    ),
    Story(
        "download",
        "Downloads from a slow server",
        "stories/download.py",
        "io-bound",
        "python download.py",
        "python download.py --workers 16",
        "Sixty files from a server that takes a tenth of a second to answer. The CPUs are idle "
        "nearly all the time: two threads run tasks, and each task waits for the server.",
        "Sixteen threads instead of two, because a waiting thread needs no CPU.",
        recognized="The column *CPU %* is close to zero, and *tasks waiting for I/O* is the "
        "longest part of the bar *Wall time*.",
    ),
    Story(
        "memory",
        "Memory that grows",
        "stories/memory.py",
        "memory-growth",
        "python memory.py",
        "python memory.py --cached 16",
        "Moments of a hundred batches of data. The function that reads the batches has a cache "
        "without a limit, so memory grows with every batch.",
        "The cache holds at most sixteen results.",
        gains="memory",
        recognized="Memory rises from computation to computation, even while no task runs. "
        "Common causes are caches, global lists and results that the program keeps.",
    ),
)
