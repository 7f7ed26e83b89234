"""Sixty small files from a server that takes a tenth of a second to answer."""

import argparse
import http.server
import threading
import time
import urllib.request

import dask


class SlowServer(http.server.BaseHTTPRequestHandler):
    """In place of a store far away."""

    def do_GET(self) -> None:
        time.sleep(0.1)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 1_000)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A connection that finds no place in its queue is tried again after a second."""

    request_queue_size = 64


@dask.delayed
def size_of(address: str) -> int:
    with urllib.request.urlopen(address) as answer:
        return len(answer.read())


def main(workers: int) -> None:
    server = Server(("127.0.0.1", 0), SlowServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    sizes = [size_of(f"{address}/{number}") for number in range(60)]
    total = dask.delayed(sum)(sizes).compute(scheduler="threads", num_workers=workers)
    server.shutdown()
    print(f"{total:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    main(parser.parse_args().workers)
