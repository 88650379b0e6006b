"""What the process logs, for the store on this machine. The lines of calls are not among it: the audit log has them."""

import logging
from collections.abc import Callable
from typing import Final

from gateway.telemetry.log import IDS, clean
from gateway.telemetry.store import Line


class StoreHandler(logging.Handler):
    """The store's own complaints are left out: they would feed on themselves."""

    def __init__(self, put: Callable[[Line], None]) -> None:
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "gatehouse.telemetry":
            return
        cause = clean(_CAUSE.formatException(record.exc_info), 16_384) if record.exc_info else ""
        correlation, trace, span = (str(getattr(record, name, "") or "") for name in IDS)
        level, message = record.levelname.lower(), clean(record.getMessage())
        self._put(Line(int(record.created * 1e9), level, record.name, message, correlation, trace, span, cause))


_CAUSE: Final = logging.Formatter()
