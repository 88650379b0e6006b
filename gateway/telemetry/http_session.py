"""The HTTP session of the OTLP exporters."""

import ssl
import traceback
from typing import Any

import requests
from requests.adapters import HTTPAdapter


class _TlsAdapter(HTTPAdapter):
    """Verifies servers with this TLS context, directly and through a proxy."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._tls, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._tls, **kwargs)


class CollectorSession(requests.Session):
    """Connects without the proxies of the environment, and releases the body of a request that failed.

    An exception of urllib3 is part of a reference cycle with the frames that hold the body, so a collector that is
    down would keep every encoded batch in memory until the garbage collector runs.
    """

    def __init__(self, proxy: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        """`proxy` is the URL of an HTTP proxy; `tls` has certificate authorities beside those of the system."""
        super().__init__()
        # The operator chose the URL. Proxies of the environment are for other traffic.
        self.trust_env = False
        if proxy is not None:
            self.proxies = {"http": proxy, "https": proxy}
        if tls is not None:
            self.mount("https://", _TlsAdapter(tls))

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            return super().request(*args, **kwargs)
        except requests.RequestException as exc:
            error: BaseException | None = exc
            while error is not None:
                traceback.clear_frames(error.__traceback__)
                error = error.__context__
            # The type is kept, as the exporters decide by it whether to retry; the original refers to the request.
            raise type(exc)(str(exc)) from None
