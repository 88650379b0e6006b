"""`gatehouse audit export --otlp`: records of the past, for a collector that was not there, or not reached, then."""

from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gateway.cli.failure import UNREACHABLE, CommandError
from gateway.cli.load_settings import read_without_backends
from gateway.telemetry.otlp_log import audit_record
from gateway.telemetry.senders import ExportRejected, RetryLater
from gateway.wiring.telemetry import encoder, sender

_BATCH: Final = 500


def send(records: Iterator[dict[str, Any]], config: Path | None) -> int:
    """How many were taken. Raises `Failure` at the first that were not."""
    otlp = read_without_backends(config).telemetry.otlp
    if otlp.url is None:
        raise CommandError("no collector is named; set telemetry.otlp.url")
    encode, to, taken = encoder(version("gatehouse")), sender(otlp), 0
    try:
        while batch := [audit_record(each) for each in islice(records, _BATCH)]:
            to.send("logs", encode.logs(batch))
            taken += len(batch)
    except (RetryLater, ExportRejected) as exc:
        told = f"{otlp.url} did not take them ({exc}); {taken} were sent before"
        raise CommandError(told, code=UNREACHABLE) from exc
    finally:
        to.close()
    return taken
