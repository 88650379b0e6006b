"""Selects the full-text index for a database engine."""

from backends.knowledge.search.index import Index
from backends.knowledge.search.postgres import TextSearch
from backends.knowledge.search.sqlite import Fts5
from gateway.errors import Fault, Kind


def index_for(engine: str) -> Index:
    """Return the index for a SQLAlchemy dialect name. Raises `Fault(UNSUPPORTED)`."""
    match engine:
        case "sqlite":
            return Fts5()
        case "postgresql":
            return TextSearch()
        case _:
            pass
    raise Fault(Kind.UNSUPPORTED, f"Full-text search is not available on {engine}.")
