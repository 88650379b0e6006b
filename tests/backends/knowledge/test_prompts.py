"""Prompts: complete instructions, made from their arguments, that write nothing by themselves."""

from typing import Any

import pytest

WRITING = ("store", "update", "delete", "relate", "undo", "ingest", "resolve_conflict", "update_triple")


async def prompt(memory: Any, name: str, **arguments: str) -> str:
    answer = await memory.post("prompts/get", {"name": f"knowledge_{name}", "arguments": arguments})
    (message,) = answer["result"]["messages"]
    assert message["role"] == "user"
    return message["content"]["text"]


async def test_arguments_are_in_the_text_word_for_word(memory: Any) -> None:
    text = await prompt(memory, "ingest-memory", text="The sky {is} blue.\n%s", topic='a "quoted" topic', source="me")
    assert "The sky {is} blue.\n%s" in text
    assert '"a \\"quoted\\" topic"' in text
    assert 'source "me"' in text
    text = await prompt(memory, "retrieve-context", topic="rollback", question="How fast?", as_of="2026-01-01")
    assert all(each in text for each in ('"rollback"', "How fast?", '"2026-01-01"'))
    text = await prompt(memory, "correct-stale-facts", topic="host", correct_fact="It is host-2 now.")
    assert "It is host-2 now." in text


@pytest.mark.parametrize("name", ["ingest-memory", "retrieve-context", "correct-stale-facts"])
async def test_the_text_is_complete_without_the_optional_arguments(memory: Any, name: str) -> None:
    text = await prompt(memory, name, topic="t")
    assert "None" not in text
    assert "{" not in text
    assert "1. " in text
    assert "changes nothing" in text


async def test_a_prompt_writes_nothing_and_reading_asks_for_no_writing_tool(memory: Any) -> None:
    text = await prompt(memory, "retrieve-context", topic="t")
    assert not any(f"`{tool}`" in text for tool in WRITING)
    assert (await memory("history"))["items"] == []


async def test_bad_arguments_are_refused_with_their_names(memory: Any) -> None:
    for arguments, path in (({}, "topic"), ({"topic": " "}, "topic"), ({"topic": "t", "topics": "u"}, "topics")):
        answer = await memory.post("prompts/get", {"name": "knowledge_retrieve-context", "arguments": arguments})
        assert answer["error"]["data"]["code"] == "validation"
        assert answer["error"]["data"]["validation_path"] == f"input.{path}"


async def test_known_topics_complete(memory: Any) -> None:
    for topic in ("Deployment", "deploy keys", "rollback", "Deployment"):
        await memory("store", topic=topic, content="c")
    gone = await memory("store", topic="deprecated", content="c")
    await memory("delete", id=gone["id"])

    async def complete(ref: Any, name: str, value: str) -> Any:
        argument = {"name": name, "value": value}
        answer = await memory.post("completion/complete", {"ref": ref, "argument": argument})
        return answer["result"]["completion"]

    ref = {"type": "ref/prompt", "name": "knowledge_correct-stale-facts"}
    assert sorted((await complete(ref, "topic", "dep"))["values"]) == ["Deployment", "deploy keys"]
    assert (await complete(ref, "topic", "%"))["values"] == []
    assert (await complete(ref, "correct_fact", "d"))["values"] == []
    template = {"type": "ref/resource", "uri": "knowledge://entries/{id}"}
    assert len((await complete(template, "id", "0"))["values"]) == 4
