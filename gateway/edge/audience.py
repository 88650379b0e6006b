"""What a credential was made for."""

from gateway.contract import Caller
from gateway.errors import Fault, Kind

HOUSE = "/mcp"
"""The endpoint whose credentials are good for the whole house."""


def check_audience(caller: Caller, endpoint: str = HOUSE) -> None:
    """Raises `Fault(UNAUTHENTICATED)` unless the credential is for this endpoint or for the whole house."""
    if caller.resource not in (HOUSE, endpoint):
        raise Fault(Kind.UNAUTHENTICATED, "The credential is for another endpoint.", details={"reason": "invalid"})
