"""The words of the house: the caller, a call and its way, and what a backend module may know."""

from gateway.contract.call import (
    Answered,
    Backend,
    Call,
    Change,
    Client,
    Handler,
    Inbound,
    Offer,
    Outlet,
    OwnLists,
    Record,
    Route,
    Stage,
    Want,
    Wire,
)
from gateway.contract.caller import MODERN, Caller, Json, Result
from gateway.contract.module import Bridge, Bus, Here, Home, Lease, Manifest, Piece, Refusal, Store
from gateway.contract.place import Hop, Place
from gateway.contract.silent import SilentWire

__all__ = [
    "MODERN",
    "Answered",
    "Backend",
    "Bridge",
    "Bus",
    "Call",
    "Caller",
    "Change",
    "Client",
    "Handler",
    "Here",
    "Home",
    "Hop",
    "Inbound",
    "Json",
    "Lease",
    "Manifest",
    "Offer",
    "Outlet",
    "OwnLists",
    "Piece",
    "Place",
    "Record",
    "Refusal",
    "Result",
    "Route",
    "SilentWire",
    "Stage",
    "Store",
    "Want",
    "Wire",
]
