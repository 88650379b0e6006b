"""The way out of the network, as configured under `outbound:`."""

from gateway.outbound import OutboundRoute, Proxy
from gateway.settings import Settings


def outbound_route(settings: Settings) -> OutboundRoute:
    """The proxy and the certificate authorities that every outgoing connection uses."""
    outbound = settings.outbound
    proxy = Proxy.parse(outbound.proxy.get_secret_value()) if outbound.proxy is not None else None
    return OutboundRoute(proxy, outbound.no_proxy, outbound.ca_file)
