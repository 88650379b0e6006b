"""The definition of a tool: name, schemas and effect."""

from dataclasses import dataclass

from gateway.contract import Json


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the backend. `effect` follows the gateway's effect levels; 0 is read-only."""

    name: str
    title: str
    description: str
    effect: int
    input: Json
    output: Json
    destructive: bool = False
    confirmed: bool = False
    """Leave out the read-only hint of a reading tool, so that clients ask their user before they call it."""

    def definition(self) -> Json:
        annotations: Json = {
            "title": self.title,
            "readOnlyHint": self.effect == 0,
            "destructiveHint": self.destructive,
            "idempotentHint": self.effect <= 1,
            "openWorldHint": False,
        }
        if self.confirmed:
            del annotations["readOnlyHint"]
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input,
            "outputSchema": self.output,
            "annotations": annotations,
        }
