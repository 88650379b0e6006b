"""Secrets: read from files, and never shown."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from gateway.settings import Section, UrlBackend

from .conftest import lines, read


class Vault(Section):
    token: SecretStr | None = None
    token_file: Path | None = None


def test_secret_is_read_from_its_file_and_stripped(working_directory: Path) -> None:
    (working_directory / "token").write_text("  s3cret\n")
    vault = Vault.model_validate({"token_file": "token"})
    assert vault.token is not None
    assert vault.token.get_secret_value() == "s3cret"
    backend = read("backends: {a: {url: 'http://x', headers: {B: b}, headers_file: {A: token}}}").backends["a"]
    assert isinstance(backend, UrlBackend)
    assert {name: value.get_secret_value() for name, value in backend.headers.items()} == {"B": "b", "A": "s3cret"}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "headers: {A: hush}, headers_file: {A: token}",
            "g.yaml:1:76: backends.a.headers_file.A: set it in either headers or headers_file, not both",
        ),
        (
            "headers_file: {A: nope}",
            "g.yaml:1:56: backends.a.headers_file.A: the file cannot be read: No such file or directory",
        ),
        ("headers: {A: [hush]}", "g.yaml:1:51: backends.a.headers.A: expected text"),
    ],
)
def test_error_about_a_secret_does_not_contain_it(working_directory: Path, entry: str, expected: str) -> None:
    (working_directory / "token").write_text("hush")
    assert lines(f"backends: {{a: {{url: 'http://127.0.0.1', {entry}}}}}") == [expected]


def test_secret_and_its_file_together_are_rejected() -> None:
    with pytest.raises(ValidationError, match="set either token or token_file, not both"):
        Vault.model_validate({"token": "hush", "token_file": "x"})


def test_secrets_do_not_appear_in_settings_or_errors() -> None:
    text = "backends: {a: {command: c, env: {K: hush-1}}, b: {url: 'http://x', headers: {H: hush-2}}}\n"
    settings = read(text)
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    found = lines(text + "log: {level: hush-3}\nserver: {port: hush-4}\n", GATEHOUSE__AUDIT__ENABLED="hush-5")
    assert len(found) == 3
    assert "hush" not in "\n".join(found)
