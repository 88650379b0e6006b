"""How the app learns, without a task, that a client went away before its answer was complete."""

from collections.abc import Callable

EXTENSION = "gatehouse.gone"
"""Its place in `scope["extensions"]`."""


class Gone:
    """`gone(callback)`: called at most once, at once if the client is gone already, never after the answer."""

    __slots__ = ("_callbacks", "_lost")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] | None = []
        self._lost = False

    def __call__(self, callback: Callable[[], None]) -> None:
        if self._lost:
            callback()
        elif self._callbacks is not None:
            self._callbacks.append(callback)

    def answered(self) -> None:
        """The response is complete: forget everybody."""
        self._callbacks = None

    def lost(self) -> None:
        """The client is gone. Means nothing once answered."""
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is None:
            return
        self._lost = True
        for callback in callbacks:
            callback()
