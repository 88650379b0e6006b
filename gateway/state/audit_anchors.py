"""Evidence about the audit records outside the database: files in the data folder, and lines in logs.

For each writer there are two files. `WRITER.json` is the sealed end of its chains, replaced at most once a second. The
first eight bytes of `WRITER.count` are the number of queued records, in memory shared with the file: they survive the
end of the process. `AuditLog` writes these files, `gatehouse audit verify` reads them.
"""

import base64
import fcntl
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.state.audit_chain import AuditKey, Chain, ChainHead, OutsideEvidence, WriterAnchor

FOLDER: Final = "audit-anchors"
_UNKEYED: Final = "unkeyed.json"
_COUNT: Final = struct.Struct("<Q")
_TOKEN: Final = re.compile(r"audit-anchor:([A-Za-z0-9_-]+)")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class QueueCounter:
    """Counts the queued records of one writer in a file that survives the process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(self._descriptor, _COUNT.size)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held as long as the process runs
        self._memory = mmap.mmap(self._descriptor, _COUNT.size)

    def set(self, count: int) -> None:
        _COUNT.pack_into(self._memory, 0, count)

    def close(self) -> None:
        self._memory.close()
        os.close(self._descriptor)


class AnchorFiles:
    """The anchor files of one data folder."""

    def __init__(self, data_dir: Path, key: AuditKey) -> None:
        self._folder = data_dir / FOLDER
        self._key = key

    def open_counter(self, writer: str) -> QueueCounter:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return QueueCounter(self._folder / f"{writer}.count")

    def write(self, anchor: WriterAnchor) -> None:
        self._replace(f"{anchor.writer}.json", encode_anchor(self._key, anchor))

    def note_unkeyed(self, read: Callable[[], Mapping[Chain, ChainHead]]) -> None:
        """Note the ends of the chains without a key, once: no such chain may be added later."""
        if not (self._folder / _UNKEYED).exists():
            chains = [[*chain, *head] for chain, head in sorted(read().items())]
            self._replace(_UNKEYED, _encode({"chains": chains, "seal": self._key.seal("unkeyed", chains)}))

    def prune(self, before: float) -> None:
        """Delete the files of writers that ended before that time."""
        for path in self._folder.glob("*.count"):
            with suppress(OSError):
                if path.stat().st_mtime < before and not _is_locked(path):
                    path.with_suffix(".json").unlink(missing_ok=True)
                    path.unlink()

    def read(self, lines: Iterable[str] = ()) -> "tuple[OutsideEvidence, list[str]]":
        """Read all files, and the anchors in `lines` of a log. Returns also what is wrong with them."""
        anchors: list[WriterAnchor] = []
        problems: list[str] = []
        for path in sorted(self._folder.glob("*.json")):
            if path.name != _UNKEYED:
                _add(anchors, problems, path.name, decode_anchor(self._key, path.read_bytes()))
        for token in _tokens(lines):
            _add(anchors, problems, "a line of the log", decode_anchor(self._key, token))
        unkeyed = self._read_unkeyed(problems)
        return OutsideEvidence(anchors, self._read_counters(), unkeyed), problems

    def _read_counters(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for path in self._folder.glob("*.count"):
            with suppress(OSError, struct.error):
                if not _is_locked(path):
                    (counted[path.stem],) = _COUNT.unpack(path.read_bytes())
        return counted

    def _read_unkeyed(self, problems: list[str]) -> dict[Chain, ChainHead] | None:
        try:
            noted: Any = msgspec.json.decode((self._folder / _UNKEYED).read_bytes())
            if self._key.is_sealed(noted["seal"], "unkeyed", noted["chains"]):
                return {(tenant, writer): (sequence, hash) for tenant, writer, sequence, hash in noted["chains"]}
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            pass
        problems.append(f"{_UNKEYED} was changed")
        return None

    def _replace(self, name: str, content: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f".{name}.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        draft.replace(self._folder / name)


def encode_anchor(key: AuditKey, anchor: WriterAnchor) -> bytes:
    values = _values(anchor)
    return _encode({**values, "seal": key.seal("anchor", values)})


def anchor_token(key: AuditKey, anchor: WriterAnchor) -> str:
    """The anchor as one word for a log line."""
    return f"audit-anchor:{base64.urlsafe_b64encode(encode_anchor(key, anchor)).decode().rstrip('=')}"


def decode_anchor(key: AuditKey, content: bytes) -> WriterAnchor | None:
    """None if it was not sealed with this key."""
    try:
        found: Any = msgspec.json.decode(content)
        seal = found.pop("seal")
        anchor = WriterAnchor(
            found["writer"],
            found["number"],
            found["at"],
            {name: (head[0], head[1]) for name, head in found["heads"].items()},
        )
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError):
        return None
    return anchor if key.is_sealed(seal, "anchor", _values(anchor)) else None


def _values(anchor: WriterAnchor) -> dict[str, Any]:
    heads = {tenant: list(head) for tenant, head in sorted(anchor.heads.items())}
    return {"writer": anchor.writer, "number": anchor.number, "at": anchor.at, "heads": heads}


def _add(anchors: list[WriterAnchor], problems: list[str], source: str, anchor: WriterAnchor | None) -> None:
    if anchor is None:
        problems.append(f"the anchor in {source} was changed, or has another key")
    else:
        anchors.append(anchor)


def _tokens(lines: Iterable[str]) -> Iterator[bytes]:
    for line in lines:
        for token in _TOKEN.findall(line):
            yield base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def _is_locked(path: Path) -> bool:
    """Whether the writer of this file still runs."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
