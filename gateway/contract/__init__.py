"""Types shared by all packages: the caller, the call, and the API that backend modules are written against."""

from gateway.contract.backend_api import Bridge, Bus, CurrentCall, Host, Lease, Manifest, RefusedCall, Store, WorkSpan
from gateway.contract.call import (
    Backend,
    BackendLists,
    Call,
    ClientProfile,
    Handler,
    InputResponse,
    IsolatedLists,
    ListChange,
    McpHttpRequest,
    NullWire,
    Record,
    ResourceInterest,
    ResponseWriter,
    Route,
    Stage,
    Wire,
)
from gateway.contract.caller import MODERN, Caller, Json, Result
from gateway.contract.flags import read_flag
from gateway.contract.trace_position import TracePosition, UpstreamHop

__all__ = [
    "MODERN",
    "Backend",
    "BackendLists",
    "Bridge",
    "Bus",
    "Call",
    "Caller",
    "ClientProfile",
    "CurrentCall",
    "Handler",
    "Host",
    "InputResponse",
    "IsolatedLists",
    "Json",
    "Lease",
    "ListChange",
    "Manifest",
    "McpHttpRequest",
    "NullWire",
    "Record",
    "RefusedCall",
    "ResourceInterest",
    "ResponseWriter",
    "Result",
    "Route",
    "Stage",
    "Store",
    "TracePosition",
    "UpstreamHop",
    "Wire",
    "WorkSpan",
    "read_flag",
]
