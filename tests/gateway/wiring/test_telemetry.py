"""Which telemetry packages are imported: none of the SDK's exporters unless something is exported."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from io import StringIO
from pathlib import Path
from gateway.settings import Settings
from gateway.telemetry.log import LogLines
from gateway.wiring.telemetry import TelemetryWiring

settings = Settings.model_validate({{"data_dir": {folder!r}, "telemetry": {telemetry!r}}})
import gateway.app
TelemetryWiring(settings, "1", LogLines(StringIO()))
packages = {{"requests", "grpc", "google.protobuf", "opentelemetry.sdk", "opentelemetry.exporter"}}
print(*sorted(packages & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("telemetry", "imported"),
    [
        ({}, ""),
        ({"otlp": {"url": "http://127.0.0.1:9"}}, "google.protobuf opentelemetry.exporter opentelemetry.sdk requests"),
        (
            {"otlp": {"url": "http://127.0.0.1:9", "protocol": "grpc"}},
            "google.protobuf grpc opentelemetry.exporter opentelemetry.sdk",
        ),
    ],
)
def test_exporters_are_imported_only_for_a_configured_collector(
    tmp_path: Path, telemetry: dict[str, object], imported: str
) -> None:
    script = SCRIPT.format(folder=str(tmp_path), telemetry=telemetry)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, imported), done.stderr
