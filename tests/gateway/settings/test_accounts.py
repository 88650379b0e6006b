"""The sections `account`, `vault` and `outbound`."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.errors import Fault
from gateway.settings import Settings
from gateway.settings.accounts import VaultSettings
from gateway.wiring.accounts import load_master_keys

URL = "https://mcp.example.org/mcp"


def _backend(**entry: Any) -> Settings:
    return Settings.model_validate({"backends": {"hub": {"url": URL, **entry}}})


@pytest.mark.parametrize(
    ("account", "message"),
    [
        ({}, "exactly one of oauth, key, exchange, id_jag"),
        ({"oauth": {}, "key": {}}, "exactly one of oauth, key, exchange, id_jag"),
        ({"oauth": {"client_secret": "s"}}, "is required with a client secret or key"),
        ({"key": {"template": "Bearer"}}, "printable ASCII with {key}"),
        ({"key": {"header": "Host"}}, "cannot carry a key"),
        ({"exchange": {}}, "either token_url or issuer"),
    ],
)
def test_account_that_cannot_work_is_rejected(account: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _backend(account=account)


def test_account_needs_streamable_http() -> None:
    with pytest.raises(ValidationError, match="SSE transport has no accounts"):
        _backend(account={"oauth": {}}, type="sse")


def test_program_takes_no_account_because_its_processes_could_read_each_others_keys() -> None:
    entry = {"command": "server", "isolation": "user", "account": {"key": {}}}
    with pytest.raises(ValidationError, match="account"):
        Settings.model_validate({"backends": {"hub": entry}})


@pytest.mark.parametrize("proxy", ["https://proxy.example.org", "proxy.example.org:3128", "socks5://proxy"])
def test_proxy_must_be_an_http_address(proxy: str) -> None:
    with pytest.raises(ValidationError, match="expected an address"):
        Settings.model_validate({"outbound": {"proxy": proxy}})


def test_ca_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="does not exist"):
        Settings.model_validate({"outbound": {"ca_file": str(tmp_path / "missing.pem")}})


def test_master_key_comes_from_a_command_a_value_or_a_file_that_is_created(tmp_path: Path) -> None:
    text = "bW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW0="
    by_command = load_master_keys(VaultSettings(key_command=("echo", text)), tmp_path)
    by_value = load_master_keys(VaultSettings.model_validate({"key": text}), tmp_path)
    assert by_command.id == by_value.id
    created = load_master_keys(VaultSettings(), tmp_path)
    assert created.id == load_master_keys(VaultSettings(), tmp_path).id != by_value.id


@pytest.mark.parametrize("command", [("false",), ("echo", "short"), ("no-such-program-here",)])
def test_command_without_a_key_leaves_the_vault_closed(tmp_path: Path, command: tuple[str, ...]) -> None:
    with pytest.raises(Fault):
        load_master_keys(VaultSettings(key_command=command), tmp_path)
