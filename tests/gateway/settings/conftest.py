"""Each test in an empty folder, and the two ways a file can end: as settings or as lines."""

from pathlib import Path
from typing import Any, cast

import pytest

from gateway.settings import Settings, SettingsError, load


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def at(settings: Settings, dotted: str) -> Any:
    value: Any = settings
    for key in dotted.split("."):
        value = cast("dict[str, Any]", value)[key] if isinstance(value, dict) else getattr(value, key)
    return value
