"""Notes: each tenant its own."""

from pathlib import Path

from mcp.server import MCPServer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from gateway.contract import Host, Manifest
from gateway.errors import Fault, Kind


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    most: int = Field(default=1000, gt=0, description="Notes of one tenant.")


manifest = Manifest(options=Options, effects={"add": 2, "find": 0}, migrations=Path(__file__).parent / "migrations")


def server(host: Host) -> MCPServer:
    made = MCPServer("notes")

    @made.tool()
    async def add(note: str) -> int:
        """Keep a note; the answer is how many there are."""
        async with host.store(host.current_call().caller).transaction() as connection:
            count = (await connection.execute(text("SELECT count(*) FROM notes"))).scalar_one()
            if count >= host.options.most:
                raise Fault(Kind.ILLEGAL_STATE, "There is no room for another note.")
            row = {"number": count + 1, "note": note}
            await connection.execute(text("INSERT INTO notes (number, note) VALUES (:number, :note)"), row)
            return count + 1

    @made.tool()
    async def find(word: str) -> list[str]:
        """Notes with that word in them."""
        async with host.store(host.current_call().caller).transaction() as connection:
            query = text("SELECT note FROM notes WHERE replace(note, :word, '') <> note ORDER BY number")
            return list((await connection.execute(query, {"word": word})).scalars())

    return made
