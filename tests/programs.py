"""Where programs that tests start find the package, and not distributed."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = str(Path(__file__).parent.parent)
SEARCHED = os.pathsep.join([str(Path(__file__).parent / "without_distributed"), ROOT])
"""dask imports distributed where it is installed, which is half of what a program takes here."""
