"""The HTTP session of the OTLP exporters."""

import traceback
from typing import Any

import requests


class CollectorSession(requests.Session):
    """Connects without the proxies of the environment, and releases the body of a request that failed.

    An exception of urllib3 is part of a reference cycle with the frames that hold the body, so a collector that is
    down would keep every encoded batch in memory until the garbage collector runs.
    """

    def __init__(self) -> None:
        super().__init__()
        # The operator chose the URL. Proxies of the environment are for other traffic.
        self.trust_env = False

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
