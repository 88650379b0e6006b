"""Which index serves which engine."""

from backends.knowledge.search.index import Index
from backends.knowledge.search.postgres import TextSearch
from backends.knowledge.search.sqlite import Fts5
from gateway.errors import Fault, Kind


def index_for(engine: str) -> Index:
    """By the engine's name as SQLAlchemy has it. Raises `Fault(UNSUPPORTED)`."""
    match engine:
        case "sqlite":
            return Fts5()
        case "postgresql":
            return TextSearch()
        case _:
            pass
    raise Fault(Kind.UNSUPPORTED, f"Full-text search is not available on {engine}.")
