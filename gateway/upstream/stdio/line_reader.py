"""Splits a byte stream into lines of limited length, in time linear in the bytes."""


class LineTooLong(Exception):
    """A line exceeds the limit; the rest of the stream cannot be read."""


class LineReader:
    """Incremental line splitter. A line longer than `limit` raises `LineTooLong`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without line ends. Raises `LineTooLong`."""
        *ended, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for part in ended:
            self._append(part)
            lines.append(self._partial[0] if len(self._partial) == 1 else b"".join(self._partial))
            self._partial.clear()
            self._size = 0
        if rest:
            self._append(rest)
        return lines

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._partial.clear()
            raise LineTooLong
        self._partial.append(part)


class ClippedLineReader(LineReader):
    """As `LineReader`, but truncates a line at the limit instead of raising. For text that is only logged."""

    def _append(self, part: bytes) -> None:
        self._partial.append(part[: max(0, self._limit - self._size)])
        self._size += len(part)
