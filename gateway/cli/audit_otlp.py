"""`gatehouse audit export --otlp`: sends stored audit records to the collector, such as those it missed."""

from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gateway.cli.failure import UNREACHABLE, CommandError
from gateway.cli.load_settings import read_settings_leniently
from gateway.telemetry.otlp_log import audit_record
from gateway.telemetry.senders import ExportRejected, RetryLater
from gateway.wiring.telemetry import build_encoder, open_sender

_BATCH: Final = 500


def send(records: Iterator[dict[str, Any]], config: Path | None) -> int:
    """Send the records in batches and return their number. Raises `CommandError` at the first rejected batch."""
    otlp = read_settings_leniently(config).telemetry.otlp
    if otlp.url is None:
        raise CommandError("no collector is configured; set telemetry.otlp.url")
    encoder, sender, sent = build_encoder(version("gatehouse")), open_sender(otlp), 0
    try:
        while batch := [audit_record(each) for each in islice(records, _BATCH)]:
            sender.send("logs", encoder.logs(batch))
            sent += len(batch)
    except (RetryLater, ExportRejected) as exc:
        message = f"{otlp.url} rejected the records ({exc}) after {sent} were sent; check the collector"
        raise CommandError(message, code=UNREACHABLE) from exc
    finally:
        sender.close()
    return sent
