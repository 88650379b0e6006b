"""Where commands look for the operator's API."""

from pathlib import Path

import pytest

from gateway.cli.load_settings import api_address

APART = "server: {port: 8080, ops_port: 9090}"
PUBLIC = "server: {host: 0.0.0.0, port: 8080, public_url: https://gw.example.org/g, ops_port: 9090"


@pytest.mark.parametrize(
    ("settings", "url", "found"),
    [
        ("{}", None, "http://127.0.0.1:8080"),
        ("{}", "http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080"),
        ("{}", "https://other.example.org/mcp/core", "https://other.example.org"),
        (APART, None, "http://127.0.0.1:9090"),
        (APART, "http://127.0.0.1:8080/mcp", "http://127.0.0.1:9090"),
        (APART, "http://localhost:8080", "http://127.0.0.1:9090"),
        (APART, "http://127.0.0.1:9090", "http://127.0.0.1:9090"),
        (APART, "https://other.example.org/mcp", "https://other.example.org"),
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
def test_the_operators_port_is_found_by_the_settings_of_the_gateway_that_is_asked(
    tmp_path: Path, settings: str, url: str | None, found: str
) -> None:
    file = tmp_path / "gatehouse.yaml"
    file.write_text(settings)
    assert api_address(url, file) == found
