"""Tasks on a cluster of distributed, of which one needs the results of all others."""

import time

from distributed import Client


def load(part: int) -> list[int]:
    time.sleep(0.05)
    return list(range(part * 50_000, (part + 1) * 50_000))


def total(numbers: list[int]) -> int:
    return sum(number * number for number in numbers)


def main() -> None:
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        parts = client.map(load, range(16))
        squares = client.submit(sum, client.map(total, parts))
        print(f"sum of squares: {squares.result():,}")


if __name__ == "__main__":
    main()
