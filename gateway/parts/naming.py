"""How lists are shown, as the settings say."""

from gateway.catalogue.view import Naming
from gateway.contract import Json
from gateway.protocol.cursors import SealedCursors
from gateway.protocol.seal import Seal
from gateway.settings import Settings


def naming(settings: Settings, seal: Seal, server_info: Json) -> Naming:
    return Naming(
        max_length=settings.names.max_length,
        client_prefix_budget=settings.names.client_prefix_budget,
        deadline=settings.calls.deadline,
        page_size=settings.catalogue.page_size,
        ttl=settings.catalogue.ttl,
        server_info=server_info,
        cursors=SealedCursors(seal),
    )
