"""`Settings`: immutability, descriptions, and construction in code."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, ValidationError

from gateway.settings import Section, Settings, load

from .conftest import read


def test_settings_are_immutable() -> None:
    settings = load(None, {})
    with pytest.raises(ValidationError):
        settings.server.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        settings.server = settings.server  # type: ignore[misc]


def test_settings_built_in_code_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER", '{"port": 1}')
    monkeypatch.setenv("GATEHOUSE__SERVER__PORT", "1")
    assert Settings().server.port == 8080
    assert load().server.port == 1


def test_public_url_uses_the_bound_port_unless_it_was_set() -> None:
    assert read("server: {port: 0}").server.public_url_at(5001) == "http://127.0.0.1:5001"
    assert read("server: {public_url: 'https://g.org'}").server.public_url_at(5001) == "https://g.org"


def all_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for below in model.__subclasses__():
        yield from all_models(below)


def test_every_field_has_a_description_of_one_sentence() -> None:
    fields = [
        (f"{model.__name__}.{name}", field.description or "")
        for model in (Settings, *all_models(Section))
        if model.__module__.startswith("gateway.settings.")
        for name, field in model.model_fields.items()
    ]
    assert len(fields) > 60
    assert [name for name, text in fields if not (text.endswith(".") and text.count(". ") == 0)] == []
