"""What can be counted of this worker, and of all that share its port."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import APIRouter

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Bus
from gateway.edge.api.door import Authenticate
from gateway.edge.metrics import metrics_router
from gateway.parts.doors import Eras
from gateway.parts.served import Backends
from gateway.parts.watching import Gauges, Watching, backend_families, counted, shown
from gateway.protocol.hub import Hub
from gateway.settings import Settings
from gateway.state.audit import AuditLog
from gateway.telemetry.families import Family
from gateway.upstream.bridge import Bridges


def gauges(backends: Backends, catalogue: Catalogue, bridges: Bridges, eras: Eras, hub: Hub, audit: AuditLog) -> Gauges:
    """What is asked of the rooms whenever somebody looks."""

    def look() -> list[Family]:
        healths = backends.healths()
        return [
            *backend_families(healths, catalogue.ages()),
            counted("gatehouse.bridge.peers", "Studios and editors that are connected.", bridges.connected()),
            counted("gatehouse.streams", "Open event streams.", len(eras.streams) + len(hub)),
            counted("gatehouse.parked.calls", "Calls that wait for their client.", len(eras.parking)),
            counted("gatehouse.audit.waiting", "Audit records that are not committed yet.", audit.waiting),
        ]

    return look


def metrics(
    settings: Settings,
    watching: Watching,
    bus: Bus,
    authenticate: Authenticate,
    spawn: Callable[[Coroutine[Any, Any, None]], None],
    *,
    free: bool,
) -> APIRouter:
    """The route, and what it needs beside the calls; `free` where only this machine is served."""
    peers = watching.together(bus, settings.server.workers)
    spawn(peers.run())
    spawn(watching.lag.run())
    spawn(watching.send_metrics(asyncio.sleep))
    return metrics_router(partial(shown, peers), authenticate, free=free)
