"""The version, in a leaf: anything may import it."""

from __future__ import annotations

__version__ = "0.2.0"
