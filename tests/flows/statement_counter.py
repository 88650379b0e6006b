"""Counts the transactions and statements that a gateway runs on its own database."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event

from gateway.state.database import Database
from gateway.state.sqlite import SqliteDatabase


@dataclass
class StatementCount:
    transactions: int = 0
    statements: int = 0
    """Statements without BEGIN and COMMIT. On PostgreSQL this includes the statement that sets the tenant."""
    polls: int = 0
    """Reads by the change feed of SQLite, which run at fixed intervals and not per request."""
    texts: Counter[str] = field(default_factory=Counter[str])


@contextmanager
def count_statements(database: Database) -> Generator[StatementCount]:
    """Count until the block ends, with SQLAlchemy's events and the trace of the polling connection."""
    engine: Any = database._engine
    is_sqlite = isinstance(engine, SqliteDatabase)
    engines = [engine._writer, engine._readers] if is_sqlite else [engine._pool.engine]
    count = StatementCount()

    def begin(_connection: Any) -> None:
        count.transactions += 1

    def execute(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            count.statements += 1
            count.texts[" ".join(statement.split())] += 1

    def trace(statement: str) -> None:
        count.polls += "data_version" not in statement

    for each in engines:
        event.listen(each.sync_engine, "begin", begin)
        event.listen(each.sync_engine, "before_cursor_execute", execute)
    if is_sqlite:
        engine._poller._connection.set_trace_callback(trace)
    try:
        yield count
    finally:
        for each in engines:
            event.remove(each.sync_engine, "begin", begin)
            event.remove(each.sync_engine, "before_cursor_execute", execute)
        if is_sqlite:
            engine._poller._connection.set_trace_callback(None)
