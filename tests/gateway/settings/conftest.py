"""Runs each test in an empty folder; helpers to read settings or the lines of their errors."""

from pathlib import Path
from typing import Any, cast

import pytest

from gateway.settings import Settings, SettingsError, load


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, **environ: str) -> Settings:
    Path("g.yaml").write_text(text)
    return load(Path("g.yaml"), environ)


def lines(text: str, **environ: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(text, **environ)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return list(caught.value.lines)


def value_at(settings: Settings, dotted_path: str) -> Any:
    value: Any = settings
    for key in dotted_path.split("."):
        value = cast("dict[str, Any]", value)[key] if isinstance(value, dict) else getattr(value, key)
    return value
