"""Notebooks in a real JupyterLab, for tests and for pictures of the documentation."""

import os
import secrets
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

TOKEN = secrets.token_hex()
PANEL = "[...jupyterapp.shell.widgets('main')].at(-1)"
SHOWN = "({text: cell.innerText, images: [...cell.querySelectorAll('img')].filter((one) => one.width > 0).length})"
READY = f"{PANEL}?.sessionContext?.session?.kernel?.status === 'idle'"


def notebook(texts, **metadata):
    """A notebook that has not run."""
    cells = [
        {
            "cell_type": "code",
            "id": f"cell-{n}",
            "metadata": {},
            "source": text,
            "outputs": [],
            "execution_count": None,
        }
        for n, text in enumerate(texts)
    ]
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "cells": cells,
        "metadata": {"kernelspec": kernel, **metadata},
    }


@contextmanager
def jupyterlab(folder):
    """Address of a JupyterLab that stores all in a folder, and the folder of its notebooks."""
    places = {
        name: str(folder / name) for name in ("config", "data", "runtime", "settings", "spaces")
    }
    news = folder / "settings" / "@jupyterlab" / "apputils-extension"
    news.mkdir(parents=True)
    (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    (folder / "notebooks").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": places["config"],
        "JUPYTER_DATA_DIR": places["data"],
        "JUPYTER_RUNTIME_DIR": places["runtime"],
        "JUPYTERLAB_SETTINGS_DIR": places["settings"],
        "JUPYTERLAB_WORKSPACES_DIR": places["spaces"],
    }
    options = {
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": folder / "notebooks",
        "IdentityProvider.token": TOKEN,
        "LabApp.extension_manager": "readonly",
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--expose-app-in-browser",
    ]
    log = folder / "log.txt"
    with log.open("w") as out:
        lab = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in options.items())],
            env=environment,
            stdout=out,
            stderr=out,
        )
    address = f"http://127.0.0.1:{port}/"
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urlopen(f"{address}api?token={TOKEN}").close()
                break
            except OSError:
                assert time.monotonic() < deadline, log.read_text()
                assert lab.poll() is None, log.read_text()
                time.sleep(0.1)
        yield address, folder / "notebooks"
    finally:
        lab.terminate()
        lab.wait(30)


class Lab:
    """A page of JupyterLab; commands are for the notebook that was opened last."""

    def __init__(self, page, address, folder):
        self.page, self.address, self.folder = page, address, folder

    def open(self, name):
        self.page.goto(f"{self.address}lab/tree/{name}?reset&token={TOKEN}")
        self.page.wait_for_function(f"() => window.jupyterapp && {READY}", timeout=90_000)

    def open_beside(self, name, cells):
        self.page.evaluate("(path) => jupyterapp.commands.execute('docmanager:open', {path})", name)
        # What it shows needs no kernel, which takes longer to start.
        self.page.wait_for_function(
            f"""() => {{
                const cells = {PANEL}?.content?.widgets
                return cells?.length === {cells} && cells.at(-1).outputArea?.node.innerText
            }}""",
            timeout=60_000,
        )

    def run(self, number):
        self.page.evaluate(
            f"""async (number) => {{
                const {{content}} = {PANEL}
                content.activeCellIndex = number
                await jupyterapp.commands.execute("notebook:run-cell")
            }}""",
            number,
        )

    def shown(self, number):
        """Text and number of images of a cell's output, scrolled into view."""
        return self.page.evaluate(
            f"""(number) => {{
                const cell = {PANEL}.content.widgets[number].outputArea.node
                cell.scrollIntoView()
                return {SHOWN}
            }}""",
            number,
        )

    def outputs(self, number):
        return self.page.evaluate(
            f"(number) => {PANEL}.content.model.cells.get(number).toJSON().outputs", number
        )

    def save(self):
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
