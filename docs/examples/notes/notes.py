"""A backend that stores notes, separately for each tenant."""

from pathlib import Path

from mcp.server import MCPServer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from gateway.contract import Host, Manifest
from gateway.errors import Fault, Kind


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    max_notes: int = Field(default=1000, gt=0, description="Maximum number of notes per tenant.")


manifest = Manifest(options=Options, effects={"add": 2, "find": 0}, migrations=Path(__file__).parent / "migrations")


def server(host: Host) -> MCPServer:
    notes = MCPServer("notes")

    @notes.tool()
    async def add(note: str) -> int:
        """Store a note and return the number of notes."""
        async with host.store(host.current_call().caller).transaction() as connection:
            count = (await connection.execute(text("SELECT count(*) FROM notes"))).scalar_one()
            if count >= host.options.max_notes:
                raise Fault(Kind.ILLEGAL_STATE, "The limit of notes is reached. Raise `max_notes` to store more.")
            row = {"number": count + 1, "note": note}
            await connection.execute(text("INSERT INTO notes (number, note) VALUES (:number, :note)"), row)
            return count + 1

    @notes.tool()
    async def find(word: str) -> list[str]:
        """Return the notes that contain the word."""
        async with host.store(host.current_call().caller).transaction() as connection:
            query = text("SELECT note FROM notes WHERE replace(note, :word, '') <> note ORDER BY number")
            return list((await connection.execute(query, {"word": word})).scalars())

    return notes
