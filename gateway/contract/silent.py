"""The wire of a call that no client waits for."""

from collections.abc import Mapping

from gateway.contract.caller import Json
from gateway.errors import Fault, Kind


class NullWire:
    """Of what the house itself calls, or refuses: nobody is there to hear or be asked."""

    waited = 0.0

    async def notify(self, method: str, params: Json) -> None:
        """Nobody hears it."""

    async def ask(self, requests: Mapping[str, Json]) -> dict[str, Json]:
        raise Fault(Kind.UNSUPPORTED, "Nobody is there to be asked.")

    async def hang_up(self) -> None:
        """Nobody is on the line."""
