"""Viewers as processes of their own: what one that listens at an address answers."""

from __future__ import annotations

import json
import re
import urllib.request

WAIT = 120


def asked(address, path="data?w=100"):
    """The answer to a page."""
    url, token = re.search(r"(http://\S+)/\?token=(\S+)", address).groups()
    request = urllib.request.Request(f"{url}/{path}", headers={"X-Dask-Diag-Token": token})
    with urllib.request.urlopen(request, timeout=WAIT) as response:
        return json.load(response)


def report_at(address):
    """The report that a viewer serves."""
    url, token = re.search(r"(http://\S+)/\?token=(\S+)", address).groups()
    with urllib.request.urlopen(f"{url}/report?token={token}", timeout=WAIT) as response:
        return response.read().decode()
