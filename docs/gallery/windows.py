"""The windows in which the contact sheet shows pages."""

from __future__ import annotations

from playwright.sync_api import ViewportSize

__all__ = ["DRAWN", "WINDOWS"]

WIDE, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=800)
WINDOWS = tuple(
    {"viewport": size, "color_scheme": scheme}
    for size in (WIDE, PHONE)
    for scheme in ("light", "dark")
)
"""Arguments of ``Browser.new_page``."""
DRAWN = "document.documentElement.dataset.figures === 'drawn'"
