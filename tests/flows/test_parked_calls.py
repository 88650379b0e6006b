"""A new client in front of an old way of asking: the call waits while the client fetches the answer."""

from typing import Any

from mcp import types

MODULE = "tests.flows.fixtures.asking"


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


async def test_a_client_that_cannot_be_asked_gets_an_error_not_a_hang(start: Any, era: str) -> None:
    async with start(backends={"asking": {"module": MODULE}}) as gateway, gateway.client(era) as client:
        result = await client.call_tool("asking_greet", {})
    assert result.is_error


async def test_anothers_request_state_is_of_no_use(start: Any) -> None:
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
        stranger = gateway.as_(await gateway.new_key(subject="mallory"))
        refused = (await stranger.post("tools/call", retry)).json()
        assert refused["error"]["code"] == -32602
        went_on = (await gateway.post("tools/call", retry)).json()
        assert went_on["result"]["content"][0]["text"] == "Hello Eve"
        # Each state is good once: the call is over.
        again = (await gateway.post("tools/call", retry)).json()
        assert "gone" in again["error"]["message"]
