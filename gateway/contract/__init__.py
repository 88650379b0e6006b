"""The words of the house: the caller, a call and its way, and what a backend module may know."""

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
    Record,
    ResourceInterest,
    ResponseWriter,
    Route,
    Stage,
    Wire,
)
from gateway.contract.caller import MODERN, Caller, Json, Result
from gateway.contract.module import Bridge, Bus, CurrentCall, Host, Lease, Manifest, RefusedCall, Store, WorkSpan
from gateway.contract.place import Hop, TracePosition
from gateway.contract.silent import NullWire

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
    "Hop",
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
    "Wire",
    "WorkSpan",
]
