"""The most frequent words of many texts, counted in worker processes."""

import argparse
import random
from collections import Counter

import dask.bag

TEXTS, WORDS = 160, 20_000


def read(number: int) -> list[str]:
    """In place of a file: a text of short words."""
    choose = random.Random(number)
    return [f"{choose.choice('abcdefgh')}{choose.randrange(500)}" for _ in range(WORDS)]


def count(words: list[str]) -> Counter:
    return Counter(words)


def add(left: Counter, right: Counter) -> Counter:
    return left + right


def main(send: str) -> None:
    texts = dask.bag.from_sequence(range(TEXTS), npartitions=16).map(read)
    if send == "words":
        # All words travel to this process, which counts them.
        totals = Counter()
        for words in texts.compute(scheduler="processes", num_workers=2):
            totals.update(words)
    else:
        # Each process counts its own; only the counts travel.
        totals = texts.map(count).fold(add).compute(scheduler="processes", num_workers=2)
    word, times = totals.most_common(1)[0]
    print(f"{len(totals):,} words; {word!r} {times:,} times")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--send", choices=["words", "counts"], default="words")
    main(parser.parse_args().send)
