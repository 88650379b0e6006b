"""The URL of the operator API, derived from --url and the settings."""

from pathlib import Path

import pytest

from gateway.cli.load_settings import api_url

OPS_PORT = "server: {port: 8080, ops_port: 9090}"
PUBLIC = "server: {host: 0.0.0.0, port: 8080, public_url: https://gw.example.org/g, ops_port: 9090"


@pytest.mark.parametrize(
    ("settings", "url", "expected"),
    [
        ("{}", None, "http://127.0.0.1:8080"),
        ("{}", "http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080"),
        ("{}", "https://other.example.org/mcp/core", "https://other.example.org"),
        (OPS_PORT, None, "http://127.0.0.1:9090"),
        (OPS_PORT, "http://127.0.0.1:8080/mcp", "http://127.0.0.1:9090"),
        (OPS_PORT, "http://localhost:8080", "http://127.0.0.1:9090"),
        (OPS_PORT, "http://127.0.0.1:9090", "http://127.0.0.1:9090"),
        (OPS_PORT, "https://other.example.org/mcp", "https://other.example.org"),
        (f"{PUBLIC}}}", None, "http://0.0.0.0:9090"),
        (f"{PUBLIC}}}", "http://127.0.0.1:8080/mcp", "http://0.0.0.0:9090"),
        (
            f"{PUBLIC}, ops_public_url: https://ops.example.org}}",
            "https://gw.example.org/g/mcp",
            "https://ops.example.org",
        ),
        ("server: {port: none of these}", "https://gw.example.org/mcp", "https://gw.example.org"),
    ],
)
def test_api_url_uses_the_ops_port_of_the_same_gateway(
    tmp_path: Path, settings: str, url: str | None, expected: str
) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text(settings)
    assert api_url(url, file) == expected
