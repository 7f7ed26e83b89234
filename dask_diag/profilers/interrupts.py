"""Ctrl-C deferred until files are closed."""

from __future__ import annotations

import signal
import sys
import threading
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class DeferredInterrupts:
    """Records each Ctrl-C in a block, and delivers one at its end.

    It is delivered by a call of the program's own handler, as the interpreter calls it. What that
    raises is chained to the exception by which the block ends, if it ends by one; if it raises
    nothing, that exception goes on.

    Elsewhere than on the main thread, which is the only one that signals interrupt, and where the
    program ignores Ctrl-C or lets it end the process at once, it does nothing.

    Parameters
    ----------
    ended_by : type, optional
        The exception that the program is ending by. While a `KeyboardInterrupt` is on its way,
        Python's default handler is not called: it would only raise another.

    Attributes
    ----------
    noted : int
        Number of interrupts since the block started, or since `let_through`.
    most : float
        With that many the block is interrupted nevertheless.
    """

    def __init__(self, ended_by: object = None) -> None:
        self.noted = 0
        self.most = inf
        self._ended_by = ended_by
        self._handler: Any = None
        self._undelivered = False
        self._insisted: KeyboardInterrupt | None = None

    def __enter__(self) -> Self:
        self.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: object
    ) -> bool:
        # One that comes from here on is delivered below: raised sooner, it would leave the
        # program without its handler.
        self.most = inf
        self._give_back()
        if not self._is_on_its_way(kind):
            self._deliver(sys._getframe())
        # It ended the block; the program's handler was called, and wanted no exception.
        return error is not None and error is self._insisted

    def hold(self) -> None:
        """Defer Ctrl-C from now on."""
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if handler != self._note and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def let_through(self) -> None:
        """Deliver Ctrl-C until `hold` is called, and those recorded so far."""
        # The program's own handler is restored while the program runs: asyncio and others check
        # which handler is installed.
        self._give_back()
        self.noted = 0
        self._deliver(sys._getframe())

    def _give_back(self) -> None:
        if self._handler is not None and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, self._handler)

    def _is_on_its_way(self, kind: type[BaseException] | None) -> bool:
        """Whether calling the handler would only raise a second `KeyboardInterrupt`."""
        return self._handler is signal.default_int_handler and any(
            isinstance(ended, type) and issubclass(ended, KeyboardInterrupt)
            for ended in (kind, self._ended_by)
        )

    def _deliver(self, frame: FrameType | None) -> None:
        if self._undelivered and self._handler is not None:
            self._undelivered = False
            # Called, and no signal sent: what waits on a wakeup file descriptor was woken already.
            self._handler(int(signal.SIGINT), frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.noted += 1
        self._undelivered = True
        if self.noted >= self.most:
            self._deliver(frame)
            self._insisted = KeyboardInterrupt()
            raise self._insisted
