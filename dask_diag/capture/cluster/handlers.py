"""What distributed remembers of the handlers that were called.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

import distributed.core

__all__ = ["forget_handlers"]


def forget_handlers() -> None:
    """Have distributed forget the handlers that it called: it looks at those that are left again.

    It keeps each for as long as its process runs, and with it all that the handler belongs to.
    """
    remembered = getattr(distributed.core, "_expects_comm", None)
    forget = getattr(remembered, "cache_clear", None)
    if forget is not None:
        forget()
