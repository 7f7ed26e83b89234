"""The defaults in dask's configuration: there without a file, and no file is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PACKAGE_FOLDER = Path(__file__).parent.parent


def after_import(home, code, **variables):
    """What a fresh interpreter with a home of its own prints once it has imported the package."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DASK", "XDG_"))
    }
    environment |= {"HOME": str(home), "USERPROFILE": str(home), **variables}
    environment |= {"PYTHONPATH": str(PACKAGE_FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import json, dask, dask_diag; print(json.dumps({code}))"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_importing_writes_nothing_into_the_home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    assert after_import(home, "dask.config.get('diag.profile')") == {
        "interval": "10ms",
        "cycle": "100ms",
    }
    assert list(home.rglob("*")) == []


def test_importing_writes_nothing_where_dask_is_configured(tmp_path_factory):
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("config")
    absent = folder / "absent"
    for path in (folder, absent):
        assert after_import(home, "dask.config.get('diag.profile.cycle')", DASK_CONFIG=str(path))
    assert list(home.rglob("*")) == []
    assert list(folder.rglob("*")) == []


@pytest.mark.parametrize("source", ["home", "DASK_CONFIG", "variable"])
def test_the_defaults_can_be_changed_as_the_docs_say(tmp_path_factory, source):
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("config")
    variables = {}
    if source == "variable":
        variables["DASK_DIAG__PROFILE__INTERVAL"] = "20ms"
    else:
        target = home / ".config" / "dask" if source == "home" else folder
        target.mkdir(parents=True, exist_ok=True)
        (target / "diag.yaml").write_text("diag:\n  profile:\n    interval: 20ms\n")
        variables |= {"DASK_CONFIG": str(folder)} if source == "DASK_CONFIG" else {}
    settings = after_import(home, "dask.config.get('diag.profile')", **variables)
    assert settings == {"interval": "20ms", "cycle": "100ms"}
