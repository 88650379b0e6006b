"""Server-initiated elicitation with a modern client: the call is parked until the client retries with the answer."""

from typing import Any

from mcp import types

MODULE = "tests.flows.fixtures.eliciting"


async def _accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def test_a_pushed_elicitation_reaches_a_client_of_either_era(start: Any, era: str) -> None:
    async with start(backends={"asking": {"module": MODULE}}) as gateway:
        async with gateway.client(era, elicitation_callback=_accept) as client:
            result = await client.call_tool("asking_greet", {})
    assert result.content[0].text == "Hello Ada"


async def test_two_questions_in_one_call_are_two_rounds(start: Any, era: str) -> None:
    async with start(backends={"asking": {"module": MODULE}}) as gateway:
        async with gateway.client(era, elicitation_callback=_accept) as client:
            result = await client.call_tool("asking_greet_twice", {})
    assert result.content[0].text == "Hello Ada and Ada"


async def test_client_without_elicitation_gets_an_error(start: Any, era: str) -> None:
    async with start(backends={"asking": {"module": MODULE}}) as gateway, gateway.client(era) as client:
        result = await client.call_tool("asking_greet", {})
    assert result.is_error


async def test_request_state_of_another_principal_is_rejected_and_each_state_works_once(start: Any) -> None:
    async with start(backends={"asking": {"module": MODULE}}) as gateway:
        meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        first = (await gateway.call("asking_greet", {}, meta))["result"]
        assert first["resultType"] == "input_required"
        answer = {"action": "accept", "content": {"name": "Eve"}}
        retry = {
            "name": "asking_greet",
            "arguments": {},
            "requestState": first["requestState"],
            "inputResponses": {"it": answer},
            "_meta": meta,
        }
        other = gateway.as_(await gateway.new_key(subject="mallory"))
        refused = (await other.post("tools/call", retry)).json()
        assert refused["error"]["code"] == -32602
        resumed = (await gateway.post("tools/call", retry)).json()
        assert resumed["result"]["content"][0]["text"] == "Hello Eve"
        # Each request state can be used once: the call has ended.
        again = (await gateway.post("tools/call", retry)).json()
        assert "The call that requested this input has ended." in again["error"]["message"]
