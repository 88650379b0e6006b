"""A real HTTP API as a backend: what clients of both eras see, and what the API receives."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from gateway.catalogue.effects import effect_of
from gateway.cli.backend_check import probe
from gateway.settings import Settings
from tests.conftest import Running
from tests.peers.recording_api import RecordingApi, recording_api

HEADERS = {"Authorization": "Bearer s3cret-credential", "X-Api-Version": "2024-06-20"}


@pytest.fixture
async def api() -> AsyncIterator[RecordingApi]:
    async with recording_api() as running:
        yield running


@pytest.fixture
async def served(api: RecordingApi, start: Any) -> AsyncIterator[Running]:
    async with start(backends={"pets": api.entry(headers=HEADERS)}) as gateway:
        await gateway.wait_for_tool("pets_listPets")
        yield gateway


async def result(gateway: Running, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await gateway.call(tool, arguments)
    assert "result" in answer, answer
    return answer["result"]


async def fault(gateway: Running, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    failed = await result(gateway, tool, arguments)
    assert failed["isError"], failed
    # A tool with an output schema has its errors in `_meta`.
    return failed["_meta"].get("gatehouse/error") or failed["structuredContent"]["error"]


async def tools_of(gateway: Running) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in (await gateway.post("tools/list")).json()["result"]["tools"]}


async def test_operations_are_listed_and_called_in_either_era(served: Any, api: RecordingApi, era: str) -> None:
    async with served.client(era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"pets_listPets", "pets_getPet", "pets_patch_notes_pets__pet_id__notes_patch"} <= tools.keys()
        # The SDK's client checks structured content against the output schema.
        found = await client.call_tool("pets_getPet", {"pet_id": "Rex"})
        assert found.structured_content == {"name": "Rex", "size": "small", "parents": [], "owner": None}
        assert json.loads(found.content[0].text) == found.structured_content
        listed = await client.call_tool("pets_listPets", {"limit": 1})
        assert listed.structured_content["result"][0]["parents"][0]["name"] == "Old"
        created = await client.call_tool("pets_createPet", {"body": {"name": "Ada"}})
        assert created.structured_content["name"] == "Ada"
        assert (api.last.method, api.last.raw_path, api.last.body) == ("POST", "/pets", b'{"name":"Ada"}')


async def test_definitions_are_closed_and_carry_effect_hints_and_output_schemas(served: Running) -> None:
    tools = await tools_of(served)
    listing = tools["pets_listPets"]
    assert listing["title"] == "List pets"
    assert listing["description"].endswith("GET /pets")
    assert listing["annotations"]["readOnlyHint"] is True
    assert tools["pets_deletePet"]["annotations"]["destructiveHint"] is True
    schema = listing["inputSchema"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"limit", "tag", "x-trace", "flavour"}
    assert "required" not in schema
    assert tools["pets_getPet"]["inputSchema"]["required"] == ["pet_id"]
    assert tools["pets_createPet"]["inputSchema"]["required"] == ["body"]
    jsonschema.Draft202012Validator(listing["outputSchema"]).validate({"result": [{"name": "Rex"}]})
    refused = await fault(served, "pets_listPets", {"limit": 1, "odd": 2})
    assert refused["kind"] == "invalid_input"
    assert (await fault(served, "pets_listPets", {"limit": 0}))["kind"] == "invalid_input"
    assert (await fault(served, "pets_createPet", {"body": {"name": "x", "parents": [{"odd": 1}]}}))["kind"] == (
        "invalid_input"
    )


async def test_effects_follow_the_methods(served: Running) -> None:
    backend = served.app.catalogue.snapshots["pets"].backend
    effects = backend.manifest.effects
    assert (effects["getPet"], effects["createPet"], effects["replacePet"], effects["deletePet"]) == (0, 2, 2, 3)
    reader = served.as_(await served.new_key(scopes=("mcp:list", "mcp:call")))
    assert not (await result(reader, "pets_getPet", {"pet_id": "Rex"}))["isError"]
    assert (await fault(reader, "pets_createPet", {"body": {"name": "Ada"}}))["kind"] == "denied"


async def test_entry_overrides_the_effect_of_an_operation(api: RecordingApi, start: Any) -> None:
    async with start(backends={"pets": api.entry(effects={"getPet": 3})}) as gateway:
        await gateway.wait_for_tool("pets_listPets")
        assert effect_of(gateway.app.catalogue.snapshots["pets"].backend, {"name": "getPet"}) == 3


async def test_parameters_reach_the_api_in_their_places(served: Running, api: RecordingApi) -> None:
    await result(served, "pets_listPets", {"limit": 5, "tag": ["a b", "c&d"], "x-trace": "t1", "flavour": "oat; x"})
    assert api.last.query == "limit=5&tag=a%20b&tag=c%26d"
    assert api.last.headers["x-trace"] == "t1"
    assert api.last.headers["cookie"] == "flavour=oat%3B%20x"
    assert api.last.headers["authorization"] == HEADERS["Authorization"]
    assert "x-correlation-id" in api.last.headers


@pytest.mark.parametrize(
    ("value", "raw"),
    [("a/b", "/pets/a%2Fb"), ("ü ?#%", "/pets/%C3%BC%20%3F%23%25"), ("a:b@c", "/pets/a%3Ab%40c"), ("...", "/pets/...")],
)
async def test_path_values_are_percent_encoded(served: Running, api: RecordingApi, value: str, raw: str) -> None:
    await served.call("pets_getPet", {"pet_id": value})
    assert api.last.raw_path == raw


@pytest.mark.parametrize(
    "value", ["..", ".", "", "../admin", "a/../../b", "..\\x", "%2e%2e", "%252e%252e/x", "a/%2e%2e", "\x00"]
)
async def test_threat_68_path_value_cannot_leave_its_segment(served: Running, api: RecordingApi, value: str) -> None:
    refused = await fault(served, "pets_getPet", {"pet_id": value})
    assert refused["kind"] == "invalid_input"
    assert "input.pet_id" in refused["message"]
    assert api.received == []


async def test_threat_68_line_breaks_in_header_arguments_are_refused(served: Running, api: RecordingApi) -> None:
    for value in ("a\r\nx-admin: 1", "a\nb", "ü"):
        assert (await fault(served, "pets_listPets", {"x-trace": value}))["kind"] == "invalid_input"
    assert api.received == []


async def test_threat_69_credentials_and_hop_headers_are_never_arguments(served: Running, api: RecordingApi) -> None:
    schema = (await tools_of(served))["pets_secured"]["inputSchema"]
    assert set(schema["properties"]) == {"X-Fine", "free"}
    for argument in ("Authorization", "Cookie", "Host", "X-Api-Key", "api_key"):
        assert (await fault(served, "pets_secured", {argument: "x"}))["kind"] == "invalid_input"
    # An exploded object must not bring the parameter of a security scheme, or another parameter, by its keys.
    assert (await fault(served, "pets_secured", {"free": {"api_key": "x"}}))["kind"] == "invalid_input"
    assert api.received == []
    await result(served, "pets_secured", {"free": {"a": 1}, "X-Fine": "y"})
    assert (api.last.query, api.last.headers["x-fine"]) == ("a=1", "y")


async def test_threat_69_credential_that_the_api_returns_does_not_reach_the_caller(served: Running) -> None:
    echoed = await served.post("tools/call", {"name": "pets_echo", "arguments": {}})
    assert "s3cret-credential" not in echoed.text
    assert "[redacted]" in echoed.text
    assert "2024-06-20" in echoed.text  # a header that is no credential
    missing = await served.post("tools/call", {"name": "pets_getPet", "arguments": {"pet_id": "missing"}})
    assert "s3cret-credential" not in missing.text


async def test_caller_credential_is_not_sent_to_the_api(served: Running, api: RecordingApi) -> None:
    await result(served, "pets_getPet", {"pet_id": "Rex"})
    assert served.key not in repr(api.last)


async def test_form_and_uploads_are_encoded(served: Running, api: RecordingApi) -> None:
    sent = await result(served, "pets_sendForm", {"body": {"name": "a&b=c", "tags": ["x", "y z"]}})
    assert sent["structuredContent"] == {"name": "a&b=c", "tags": ["x", "y z"]}
    file = {"blob": base64.b64encode(b"\x00\x01\xff").decode(), "mimeType": "image/png", "name": 'a"\r\nb.png'}
    uploaded = (await result(served, "pets_upload", {"body": {"file": file, "note": "hi"}}))["structuredContent"]
    assert (uploaded["type"], uploaded["size"], uploaded["note"]) == ("image/png", 3, "hi")
    assert "\n" not in uploaded["name"]
    many = await result(served, "pets_uploadMany", {"body": {"files": [{"text": "one"}, {"blob": "AAA="}]}})
    assert many["structuredContent"] == {"sizes": [3, 2]}
    broken = await fault(served, "pets_upload", {"body": {"file": {"blob": "not base64!"}}})
    assert (broken["kind"], broken["validation_path"]) == ("invalid_input", "input.body.file.blob")


async def test_binary_answer_is_a_base64_resource_up_to_the_limit(api: RecordingApi, start: Any, era: str) -> None:
    async with start(backends={"pets": api.entry()}, calls={"max_result_bytes": 20_000}) as gateway:
        await gateway.wait_for_tool("pets_picture")
        async with gateway.client(era) as client:
            block = (await client.call_tool("pets_picture", {"size": 9})).content[0]
            assert base64.b64decode(block.resource.blob) == b"\x89PNG" + b"\x00" * 5
            assert block.resource.mime_type == "image/png"
        large = await fault(gateway, "pets_picture", {"size": 12_000})
        assert large["kind"] == "too_large"
        assert large["max_bytes"] < 12_000


async def test_text_empty_and_event_stream_answers(served: Running) -> None:
    assert (await result(served, "pets_text"))["content"][0]["text"] == "plain ünïcode"
    assert (await fault(served, "pets_events"))["kind"] == "unsupported"


async def test_delete_asks_for_approval_and_reports_no_content(api: RecordingApi, start: Any) -> None:
    async with start(backends={"pets": api.entry(effects={"deletePet": 2})}) as gateway:
        await gateway.wait_for_tool("pets_deletePet")
        done = await result(gateway, "pets_deletePet", {"pet_id": "Rex"})
        assert done["content"][0]["text"] == "HTTP 204, without content."
        assert api.last.method == "DELETE"


async def test_answer_that_contradicts_the_document_is_still_shown(served: Any, era: str) -> None:
    async with served.client(era) as client:
        wrong = await client.call_tool("pets_wrong", {})
        assert wrong.is_error
        assert "does not match its document" in wrong.content[0].text
        assert json.loads(wrong.content[1].text) == {"name": ["not", "a", "text"]}
        # Null and additional members are common in real APIs and no reason to fail.
        assert (await client.call_tool("pets_nulls", {})).structured_content["name"] is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, "invalid_input"),
        (401, "unavailable"),
        (403, "denied"),
        (404, "not_found"),
        (405, "unsupported"),
        (409, "illegal_state"),
        (413, "too_large"),
        (418, "invalid_input"),
        (422, "invalid_input"),
        (429, "rate_limited"),
        (500, "internal"),
        (502, "unavailable"),
        (503, "unavailable"),
        (504, "timeout"),
    ],
)
async def test_status_is_mapped_to_a_kind_with_the_body_of_the_api(served: Running, code: int, kind: str) -> None:
    failed = await fault(served, "pets_status", {"code": code})
    assert (failed["kind"], failed["details"]) == (kind, {"status": code, "body": {"detail": "x" * 10}})
    assert failed.get("retry_after") == (7.0 if code in (429, 503) else None)


async def test_error_bodies_are_bounded_and_redacted(served: Running) -> None:
    large = await fault(served, "pets_status", {"code": 400, "size": 100_000})
    assert len(large["details"]["body"]) <= 4097
    page = (await fault(served, "pets_html"))["details"]["body"]
    assert page.startswith("<b>down</b> [redacted]")
    assert "\u202e" not in page
    assert len(page) <= 4097


async def test_redirect_is_not_followed(served: Running, api: RecordingApi) -> None:
    failed = await fault(served, "pets_redirect")
    assert failed["details"]["status"] == 307
    assert [each.raw_path for each in api.received] == ["/redirect"]


async def test_include_and_exclude_select_by_tag_path_and_operation(api: RecordingApi, start: Any) -> None:
    entry = api.entry(
        include={"tags": ["pets"], "paths": ["/status/*"], "operations": ["GET /text", "send*"]},
        exclude={"operations": ["create*"], "paths": ["*/notes"]},
    )
    async with start(backends={"pets": entry}) as gateway:
        await gateway.wait_for_tool("pets_listPets")
        names = {name for name in await tools_of(gateway) if name.startswith("pets_")}
        assert names == {"pets_listPets", "pets_getPet", "pets_replacePet", "pets_status", "pets_text", "pets_sendForm"}
        answer = await gateway.call("pets_createPet", {"body": {"name": "x"}})
        assert "error" in answer
        assert api.received == []


async def test_server_address_comes_from_the_entry_alone(api: RecordingApi, start: Any, tmp_path: Path) -> None:
    document: Any = api.app.openapi() | {"servers": [{"url": "http://169.254.169.254/latest"}]}
    document["paths"]["/pets"]["servers"] = [{"url": "http://127.0.0.1:1"}]
    (tmp_path / "pets.json").write_text(json.dumps(document))
    entry = {"openapi": str(tmp_path / "pets.json"), "url": f"{api.url}/", "allow_private": True}
    async with start(backends={"pets": entry}) as gateway:
        await gateway.wait_for_tool("pets_listPets")
        assert not (await result(gateway, "pets_listPets"))["isError"]
        assert api.last.headers["host"] == f"127.0.0.1:{api.port}"


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("url", {"openapi": "pets.json", "url": "http://127.0.0.1:9"}),
        ("url", {"openapi": "pets.json", "url": "https://169.254.169.254/x"}),
        ("openapi", {"openapi": "http://10.0.0.1/openapi.json", "url": "https://api.example.org"}),
    ],
)
async def test_threat_68_inward_address_is_rejected_unless_the_entry_allows_it(
    start: Any, key: str, entry: dict[str, Any]
) -> None:
    with pytest.raises(Exception, match=rf"backends\.far\.{key}"):
        async with start(backends={"far": entry}):
            pass


async def test_threat_69_credential_is_not_sent_to_another_origin_of_the_document(
    api: RecordingApi, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with recording_api() as other:
        entry = {"openapi": f"{other.url}/missing.json", "url": api.url, "allow_private": True, "headers": HEADERS}
        async with start(backends={"pets": entry, "core": {"module": "backends.core"}}) as gateway:
            assert "core_ping" in await tools_of(gateway)
            assert other.received
            assert all("authorization" not in each.headers for each in other.received)
            assert "its URL responded with HTTP 404" in caplog.text


async def test_changed_document_is_reported_by_its_pins(api: RecordingApi, start: Any, tmp_path: Path) -> None:
    document = json.loads(json.dumps(api.app.openapi()))
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document))
    entry = {"openapi": str(file), "url": api.url, "allow_private": True}
    async with start(backends={"pets": entry}, catalogue={"pins": "deny"}) as gateway:
        await gateway.wait_for_tool("pets_getPet")
        # The same names and schemas, but another path and another place of the parameter.
        document["paths"]["/secret/{pet_id}"] = {"get": document["paths"]["/pets/{pet_id}"].pop("get")}
        document["paths"]["/pets"]["get"]["parameters"][0]["in"] = "header"
        file.write_text(json.dumps(document))
        await gateway.app.catalogue.refresh_remote(60)
        names = await tools_of(gateway)
        assert "pets_getPet" not in names
        assert "pets_listPets" not in names
        assert "pets_createPet" in names


def many_operations() -> str:
    paths = {f"/p{number}": {"get": {"operationId": f"op{number}"}} for number in range(10_000)}
    return json.dumps({"openapi": "3.1.0", "info": {}, "paths": paths})


BAD_DOCUMENTS = {
    "absent": (None, "No such file"),
    "swagger": ('{"swagger": "2.0", "paths": {}}', "Swagger 2.0"),
    "many": (many_operations(), "10000 operations are selected"),
    "deep": ("x: " + "[" * 100_000, "nested too deeply"),
    "broken": ('{"openapi": ', "not valid JSON"),
    "empty": ('{"openapi": "3.1.0", "paths": {}}', "no operations"),
}


async def test_unusable_documents_are_reported_and_everything_else_is_served(
    api: RecordingApi, start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backends: dict[str, Any] = {"core": {"module": "backends.core"}, "pets": api.entry()}
    for name, (text, _) in BAD_DOCUMENTS.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        backends[name] = {"openapi": str(tmp_path / name), "url": "https://api.example.org"}
    async with start(backends=backends) as gateway:
        await gateway.wait_for_tool("pets_getPet")
        assert not (await result(gateway, "pets_getPet", {"pet_id": "Rex"}))["isError"]
        assert "core_ping" in await tools_of(gateway)
        for name, (_, reason) in BAD_DOCUMENTS.items():
            assert any(f"document of {name} " in line and reason in line for line in caplog.messages), name


async def test_api_that_is_down_is_unavailable_and_stays_listed(start: Any) -> None:
    async with recording_api() as api:
        context = start(backends={"pets": api.entry()})
        gateway = await context.__aenter__()
        await gateway.wait_for_tool("pets_getPet")
    try:
        assert (await fault(gateway, "pets_getPet", {"pet_id": "Rex"}))["kind"] == "unavailable"
        assert "pets_getPet" in await tools_of(gateway)
    finally:
        await context.__aexit__(None, None, None)


async def test_effects_of_stored_tools_are_corrected_when_the_document_can_be_read_again(
    api: RecordingApi, run: Any, tmp_path: Path
) -> None:
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(api.app.openapi()))
    backends = {"pets": {"openapi": str(file), "url": api.url, "allow_private": True}}
    async with run(tmp_path, backends=backends) as gateway:
        await gateway.wait_for_tool("pets_getPet")
    file.rename(tmp_path / "away.json")
    async with run(tmp_path, backends=backends) as gateway:
        reader = gateway.as_(await gateway.new_key(scopes=("mcp:list", "mcp:call")))
        # Stored tools are listed, but nothing is known of their methods: reading needs the scope for writing.
        assert (await fault(reader, "pets_getPet", {"pet_id": "Rex"}))["kind"] == "denied"
        (tmp_path / "away.json").rename(file)
        await gateway.app.catalogue.refresh_remote(60)
        assert not (await result(reader, "pets_getPet", {"pet_id": "Rex"}))["isError"]


async def test_backends_check_lists_the_operations_that_are_not_served(api: RecordingApi, tmp_path: Path) -> None:
    document = api.app.openapi()
    document["paths"]["/bad"] = {"get": {"parameters": [{"$ref": "https://evil.example/p.json"}]}}
    (tmp_path / "pets.json").write_text(json.dumps(document))
    entry = {"openapi": str(tmp_path / "pets.json"), "url": api.url, "allow_private": True}
    settings = Settings(backends={"pets": entry, "none": {**entry, "openapi": str(tmp_path / "none.json")}})  # type: ignore[arg-type]
    served, failed = await probe(settings, settings.backends)
    assert (served.ok, served.eras, served.tools) == (True, ("openapi",), len(document["paths"]) + 2)
    assert "leads out of the document" in served.quarantined["GET /bad"]
    assert (failed.ok, failed.problem) == (
        False,
        "The OpenAPI document of none cannot be read: No such file or directory.",
    )
    assert failed.fix.startswith("correct openapi:")


async def test_client_credentials_are_used_and_renewed(api: RecordingApi, start: Any) -> None:
    issued: list[str] = []

    @api.app.post("/token", include_in_schema=False)
    def token() -> dict[str, Any]:
        issued.append(f"access-token-{len(issued)}")
        return {"access_token": issued[-1], "token_type": "Bearer", "expires_in": 3600}

    @api.app.get("/guarded", operation_id="guarded")
    def guarded(request: Request) -> Any:
        if request.headers.get("authorization") == "Bearer access-token-0":
            return JSONResponse({"reason": "expired"}, 401)
        return {"seen": request.headers.get("authorization")}

    oauth = {"token_url": f"{api.url}/token", "client_id": "gatehouse", "client_secret": "x"}
    async with start(backends={"pets": api.entry(oauth=oauth)}) as gateway:
        await gateway.wait_for_tool("pets_guarded")
        seen = (await result(gateway, "pets_guarded"))["structuredContent"]
        assert issued == ["access-token-0", "access-token-1"]
        assert api.last.headers["authorization"] == "Bearer access-token-1"
        assert "access-token" not in json.dumps(seen)


async def test_operator_api_reports_the_health_of_the_api(served: Running) -> None:
    await result(served, "pets_getPet", {"pet_id": "Rex"})
    key = await served.new_key(scopes=("mcp:admin",))
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http:
        backends = (await http.get(f"{served.base}/api/v1/backends")).json()["backends"]
    (found,) = [each for each in backends if each["namespace"] == "pets"]
    assert (found["kind"], found["state"], found["eras"]) == ("openapi", "up", [])
