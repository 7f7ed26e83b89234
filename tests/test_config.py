"""The defaults in dask's configuration: there without a file, and no file is written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PACKAGE_FOLDER = Path(__file__).parent.parent


def after_import(home, code, first="import dask, dask_diag", **variables):
    """What a fresh interpreter with a home of its own prints once it has imported the package."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("DASK", "XDG_"))
    }
    environment |= {"HOME": str(home), "USERPROFILE": str(home), **variables}
    environment |= {"PYTHONPATH": str(PACKAGE_FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import json\n{first}\nprint(json.dumps({code}))"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("configured", [None, "", "absent"])
def test_importing_writes_nothing_into_the_home_or_where_dask_is_configured(
    tmp_path_factory, configured
):
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("config")
    variables = {} if configured is None else {"DASK_CONFIG": str(folder / configured)}
    settings = after_import(home, "dask.config.get('diag.profile')", **variables)
    assert settings == {"interval": "10ms", "cycle": "100ms"}
    assert not [*home.iterdir(), *folder.iterdir()]


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


def test_the_defaults_come_with_a_profiler_where_dask_is_imported_later(tmp_path_factory):
    """Also where that is in a block that sets one of them, and takes them with it as it ends."""
    first = """
import sys, dask_diag
loaded = "dask" in sys.modules
import dask
with dask.config.set({"diag.profile.interval": "20ms"}):
    within = dask_diag.SamplingProfiler()
after = dask_diag.SamplingProfiler()
"""
    code = "[loaded, within._interval, within._cycle, after._interval, after._cycle]"
    home = tmp_path_factory.mktemp("home")
    assert after_import(home, code, first) == [False, 0.02, 0.1, 0.01, 0.1]
