"""The change feed: which rows of which tables have changed, by any process and any version of the gateway.

Triggers in the database record each change in the transaction that makes it (migration `0050_changes`). A table that a
class holds in memory needs such triggers and an entry in `Table`.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

Table = Literal["accounts", "api_keys", "catalogue_pins", "revocations", "session_facts", "signing_keys", "tenants"]
"""Tables with change triggers. The key is the id, the id, the namespace, `kind:value`, the digest, the kid, the name.
"""
TABLES: Final[frozenset[str]] = frozenset(get_args(Table))
Keys = frozenset[str] | None
"""Keys of the rows that changed; None when any row of the table may have changed."""
ChangeListener = Callable[[Keys], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """A changed row. Without a key, any row of the table may have changed."""

    table: str
    key: str | None


class ChangeListeners:
    """Routes changes to the listeners of their tables."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[ChangeListener]] = {}

    def add(self, table: Table, listener: ChangeListener) -> None:
        if table not in TABLES:
            raise ValueError(f"Table {table} has no change triggers.")
        self._listeners.setdefault(table, []).append(listener)

    def publish(self, changes: Iterable[Change] | None) -> None:
        """Call each listener once with all keys of its table. None means that changes may have been missed."""
        by_table: dict[str, Keys] = dict.fromkeys(self._listeners) if changes is None else _keys_by_table(changes)
        for table, keys in by_table.items():
            for listener in self._listeners.get(table, ()):
                try:
                    listener(keys)
                except Exception:  # a failing listener must not keep the others from being notified
                    _log.exception("database: a change listener failed; the other listeners are notified")


def _keys_by_table(changes: Iterable[Change]) -> dict[str, Keys]:
    found: dict[str, Keys] = {}
    for change in changes:
        found[change.table] = merge_keys(
            found.get(change.table, frozenset()), None if change.key is None else frozenset((change.key,))
        )
    return found


def merge_keys(one: Keys, other: Keys) -> Keys:
    return None if one is None or other is None else one | other
