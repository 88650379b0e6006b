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
from gateway.contract.module import Bridge, Bus, Here, Home, Lease, Manifest, Refusal, Store
from gateway.contract.place import Hop, Place

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
    "Place",
    "Record",
    "Refusal",
    "Result",
    "Route",
    "Stage",
    "Store",
    "Want",
    "Wire",
]
