"""`gatehouse audit export --otlp`: sends stored audit records to the collector, such as those it missed."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gateway.cli.failure import UNREACHABLE, CommandError
from gateway.cli.load_settings import read_settings_leniently
from gateway.contract.distribution import installed_version
from gateway.telemetry.log_records import ExportFailed, audit_record
from gateway.wiring.outbound import outbound_route
from gateway.wiring.telemetry import open_log_sender

_BATCH: Final = 500


def send(records: Iterator[dict[str, Any]], config: Path | None) -> int:
    """Send the records in batches and return their number. Raises `CommandError` at the first rejected batch."""
    settings = read_settings_leniently(config)
    otlp = settings.telemetry.otlp
    if otlp.url is None:
        raise CommandError("no collector is configured; set telemetry.otlp.url")
    sender, sent = open_log_sender(otlp, otlp.url, installed_version(), outbound_route(settings)), 0
    try:
        while batch := [audit_record(each) for each in islice(records, _BATCH)]:
            sender.send(batch)
            sent += len(batch)
    except ExportFailed as exc:
        message = f"{otlp.url} did not accept the records ({exc}) after {sent} were sent; check the collector"
        raise CommandError(message, code=UNREACHABLE) from exc
    finally:
        sender.close()
    return sent
