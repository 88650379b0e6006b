"""A backend whose sensors post their readings over HTTP."""

from mcp.server import MCPServer
from pydantic import BaseModel, ConfigDict, Field

from gateway.contract import Host, HttpRequest, HttpResponse, HttpRoute, Manifest
from gateway.errors import Fault, Kind


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: str = Field(default="C", description="Unit of the readings.")


manifest = Manifest(
    options=Options,
    effects={"latest": 0},
    scopes={"readings:post": "Post readings of sensors"},
    environment={"READINGS_UNIT": "unit"},
)


def server(host: Host) -> MCPServer:
    readings = MCPServer("readings")
    values: dict[tuple[str, str], float] = {}

    async def post(request: HttpRequest) -> HttpResponse:
        try:
            value = float(await request.body())
        except ValueError as exc:
            raise Fault(Kind.INVALID_INPUT, "Send a number.") from exc
        values[request.caller.tenant, request.path_params["sensor"]] = value
        return HttpResponse.json({"value": value, "unit": host.options.unit})

    path = f"/{host.namespace}/{{sensor}}"
    host.add_routes(HttpRoute(method="POST", path=path, scope="readings:post", handler=post, max_body_bytes=100))

    @readings.tool()
    async def latest(sensor: str) -> float | None:
        """Return the latest reading of a sensor."""
        return values.get((host.current_call().caller.tenant, sensor))

    return readings
