"""Ctrl-C held back while something closes that must not be left half closed."""

from __future__ import annotations

import signal
import sys
import threading
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DeferredInterrupts"]


class DeferredInterrupts:
    """Notes each Ctrl-C in a block, and hands one on to whoever hears them when the block ends.

    Elsewhere than on the main thread, where no signal is heard, and where the program ignores
    Ctrl-C or lets it end the process at once, it does nothing.

    Parameters
    ----------
    ended_by : type, optional
        The exception that the program is ending by. After a `KeyboardInterrupt` none is handed on:
        what was to be interrupted is.

    Attributes
    ----------
    noted : int
        How many came that were not handed on.
    most : float
        With that many the block is interrupted all the same.
    """

    def __init__(self, ended_by: Any = None) -> None:
        self.noted = 0
        self.most = inf
        self._hands_on = not (ended_by and issubclass(ended_by, KeyboardInterrupt))
        self._handler: Any = None

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(self, kind: Any, *args: object) -> None:
        self._give_back()
        if self._hands_on and kind is None:
            self._hand_on()

    def hold(self) -> None:
        """Note them from here on; it may be called again."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if handler != self._note and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def let_through(self) -> None:
        """Hold none back until `hold` is called, and hand on what was noted so far."""
        self._give_back()
        self._hand_on()

    def _give_back(self) -> None:
        if self._handler is not None and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, self._handler)

    def _hand_on(self) -> None:
        if self.noted and self._handler is not None:
            self.noted = 0
            # As an interpreter does. Not sent: what waits by a file descriptor has been told.
            self._handler(int(signal.SIGINT), sys._getframe())

    def _note(self, number: int, frame: Any) -> None:
        self.noted += 1
        if self.noted >= self.most:
            raise KeyboardInterrupt
