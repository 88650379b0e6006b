"""The examples in the documents exist as files, and they work."""

import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.repo.documents import ROOT, blocks

FOLDER = ROOT / "docs" / "examples" / "notes"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    sys.modules.pop("notes", None)


def test_notes_example_on_the_page_equals_its_files() -> None:
    on_page = {block.name: block.text for block in blocks(ROOT / "docs" / "backends.md", "file")}
    assert {"notes.py", "gatehouse.yaml", "migrations/0001_notes.sql"} == set(on_page)
    assert on_page == {name: (FOLDER / name).read_text("utf-8") for name in on_page}


READINGS = ROOT / "docs" / "examples" / "readings"


def test_readings_example_on_the_page_equals_its_file() -> None:
    (on_page,) = blocks(ROOT / "docs" / "backend-module.md", "file")
    assert (on_page.name, on_page.text) == ("readings.py", (READINGS / "readings.py").read_text("utf-8"))


async def test_readings_example_accepts_readings_of_a_key_with_its_scope(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(READINGS))
    async with start(backends={"readings": {"module": "readings"}}) as gateway, httpx.AsyncClient() as http:
        url = f"{gateway.base}/readings/hall"
        assert (await http.post(url, content="21.5")).status_code == 401
        key = await gateway.new_key(scopes=("readings:post",))
        headers = {"authorization": f"Bearer {key}"}
        posted = await http.post(url, content="21.5", headers=headers)
        assert (posted.status_code, posted.json()) == (200, {"value": 21.5, "unit": "C"})
        assert (await http.post(url, content="warm", headers=headers)).status_code == 400
        assert (await http.post(url, content="1" * 101, headers=headers)).status_code == 413
        latest = await gateway.call("readings_latest", {"sensor": "hall"})
        assert latest["result"]["structuredContent"] == {"result": 21.5}
    sys.modules.pop("readings", None)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings for each engine: the page states that the same SQL works on both."""
    return {"database": {"url": request.getfixturevalue("postgres_url")}} if request.param == "postgres" else {}


@pytest.mark.usefixtures("importable")
async def test_notes_example_isolates_tenants_and_enforces_its_limit(start: Any, database: dict[str, Any]) -> None:
    tenants = {"default": {}, "others": {}}
    backends = {"notes": {"module": "notes", "options": {"max_notes": 2}}}
    async with start(backends=backends, tenants=tenants, **database) as gateway:
        for count, note in enumerate(("red apple", "green apple"), 1):
            added = await gateway.call("notes_add", {"note": note})
            assert added["result"]["structuredContent"] == {"result": count}
        refused = (await gateway.call("notes_add", {"note": "pear"}))["result"]
        assert refused["isError"]
        assert refused["_meta"]["gatehouse/error"]["kind"] == "illegal_state"
        found = await gateway.call("notes_find", {"word": "apple"})
        assert found["result"]["structuredContent"] == {"result": ["red apple", "green apple"]}
        other = gateway.as_(await gateway.new_key("others"))
        assert (await other.call("notes_find", {"word": "apple"}))["result"]["structuredContent"] == {"result": []}


@pytest.mark.usefixtures("importable")
async def test_notes_example_manifest_declares_effects(start: Any) -> None:
    async with start(backends={"notes": {"module": "notes"}}) as gateway:
        reader = gateway.as_(await gateway.new_key(scopes=("mcp:list", "mcp:call")))
        assert not (await reader.call("notes_find", {"word": "a"}))["result"]["isError"]
        denied = (await reader.call("notes_add", {"note": "a"}))["result"]
        assert denied["_meta"]["gatehouse/error"]["kind"] == "denied"
