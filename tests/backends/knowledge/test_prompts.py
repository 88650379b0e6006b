"""Tests of prompts: they contain their arguments, are complete, and write nothing."""

from typing import Any

import pytest

WRITING = ("store", "update", "delete", "relate", "undo", "ingest", "resolve_conflict", "update_triple")


async def prompt(memory: Any, name: str, **arguments: str) -> str:
    answer = await memory.post("prompts/get", {"name": f"knowledge_{name}", "arguments": arguments})
    (message,) = answer["result"]["messages"]
    assert message["role"] == "user"
    return message["content"]["text"]


async def test_prompt_contains_its_arguments_verbatim(memory: Any) -> None:
    text = await prompt(memory, "ingest-memory", text="The sky {is} blue.\n%s", topic='a "quoted" topic', source="me")
    assert "The sky {is} blue.\n%s" in text
    assert '"a \\"quoted\\" topic"' in text
    assert 'source "me"' in text
    text = await prompt(memory, "retrieve-context", topic="rollback", question="How fast?", as_of="2026-01-01")
    assert all(each in text for each in ('"rollback"', "How fast?", '"2026-01-01"'))
    text = await prompt(memory, "correct-stale-facts", topic="host", correct_fact="It is host-2 now.")
    assert "It is host-2 now." in text


@pytest.mark.parametrize("name", ["ingest-memory", "retrieve-context", "correct-stale-facts"])
async def test_prompt_is_complete_without_optional_arguments(memory: Any, name: str) -> None:
    text = await prompt(memory, name, topic="t")
    assert "None" not in text
    assert "{" not in text
    assert "1. " in text
    assert "changes nothing" in text


async def test_retrieve_prompt_names_no_writing_tool_and_writes_nothing(memory: Any) -> None:
    text = await prompt(memory, "retrieve-context", topic="t")
    assert not any(f"`{tool}`" in text for tool in WRITING)
    assert (await memory("history"))["items"] == []


async def test_invalid_arguments_are_rejected_by_name(memory: Any) -> None:
    for arguments, path in (({}, "topic"), ({"topic": " "}, "topic"), ({"topic": "t", "topics": "u"}, "topics")):
        answer = await memory.post("prompts/get", {"name": "knowledge_retrieve-context", "arguments": arguments})
        assert answer["error"]["data"]["code"] == "validation"
        assert answer["error"]["data"]["validation_path"] == f"input.{path}"


async def test_completion_suggests_known_topics(memory: Any) -> None:
    for topic in ("Deployment", "deploy keys", "rollback", "Deployment"):
        await memory("store", topic=topic, content="c", on_duplicate="store")
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
