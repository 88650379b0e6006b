"""How the app learns, without a task, that a client went away before its answer was complete."""

from collections.abc import Callable

EXTENSION = "gatehouse.gone"
"""Its place in `scope["extensions"]`."""


class DisconnectSignal:
    """`gone(callback)`: called at most once, at once if the client is gone already, never after the answer."""

    # The class's own until they change: most requests are answered before anybody asks.
    _callbacks: tuple[Callable[[], None], ...] = ()
    _over = False
    _lost = False

    def __call__(self, callback: Callable[[], None]) -> None:
        if self._lost:
            callback()
        elif not self._over:
            self._callbacks += (callback,)

    def answered(self) -> None:
        """The response is complete: forget everybody."""
        self._over = True
        self._callbacks = ()

    def lost(self) -> None:
        """The client is gone. Means nothing once answered."""
        if self._over:
            return
        self._over = self._lost = True
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback()
