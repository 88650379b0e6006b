"""Guided workflows: complete instructions that write nothing themselves, and name the tool for every write."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from backends.knowledge.tables import entries
from backends.knowledge.text_keys import fold
from backends.knowledge.unit_of_work import Book
from gateway.contract import Json
from gateway.errors import Fault, Kind, UnknownName

_MOST: Final = 100
_LONGEST: Final = 20_000
_NOTHING_YET: Final = (
    "Reading these instructions changes nothing in the memory. It changes only when you call a tool, so call one of "
    "the writing tools only where a step below says so and the user agrees."
)


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    title: str
    description: str
    arguments: tuple[Argument, ...]
    steps: Callable[[dict[str, str]], list[str]]

    def definition(self) -> Json:
        arguments = [
            {"name": each.name, "description": each.description, "required": each.required} for each in self.arguments
        ]
        return {"name": self.name, "title": self.title, "description": self.description, "arguments": arguments}


def _ingest(given: dict[str, str]) -> list[str]:
    topic = f"topic {_quoted(given['topic'])}" if "topic" in given else "a short topic of your choosing"
    text = f"The text to remember:\n\n{given['text']}" if "text" in given else "Ask the user for the text to remember."
    source = f", source {_quoted(given['source'])}" if "source" in given else ""
    return [
        text,
        f"Call `query` with {topic} to see what is already known.",
        "Show the user what you would store: one fact per entry, without what is already known.",
        f"Once the user agrees, call `store` for each new fact with {topic}{source}, fitting tags and your confidence "
        "from 0 to 1; for a text of many paragraphs call `ingest` once instead.",
        "For facts that relate two things, call `relate` with subject, predicate and object. If it answers with a "
        "conflict, ask the user which fact stands and call `resolve_conflict` with the answer.",
        "Tell the user the ids of what was stored, and that `undo` takes it back.",
    ]


def _retrieve(given: dict[str, str]) -> list[str]:
    as_of = f" and as_of {_quoted(given['as_of'])}" if "as_of" in given else ""
    question = given.get("question")
    return [
        f"Call `query` with topic {_quoted(given['topic'])}{as_of}; follow next_cursor while the items still fit.",
        f"Call `query_graph` with subject {_quoted(given['topic'])}, and once more with it as object.",
        "Prefer entries with a higher score_total and confidence; when two contradict each other, say so and name "
        "both with recorded_at.",
        f"Answer this question from what you found: {question}"
        if question
        else "Summarise what is known, the most certain first.",
        "Name the id of every entry and triple that you relied on. If nothing was found, say that nothing is known; "
        "do not guess. Call no writing tool.",
    ]


def _correct(given: dict[str, str]) -> list[str]:
    correct = given.get("correct_fact")
    fact = f"What is right now: {correct}" if correct else "Ask the user what is right now."
    return [
        fact,
        f"Call `query` with topic {_quoted(given['topic'])} and `query_graph` with subject {_quoted(given['topic'])} "
        "to find what is stale.",
        "Call `history` with entity_id for each, to see who stated it and when.",
        "Show the user each stale fact with its id beside the correction, and wait for agreement.",
        "For a fact that was wrong, call `update` (entries) or `update_triple` (triples) with expected_version as you "
        "read it. For one that was right until lately, call `update` with valid_to and `store` the new one with "
        "valid_from. For one that should not be there, call `delete`.",
        "If a tool answers `conflict`, somebody else was faster: read again and repeat. Report the ids of what "
        "changed, and that `undo` takes it back.",
    ]


_TOPIC: Final = Argument("topic", "What it is about; completes to known topics.")
PROMPTS: Final = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            "ingest-memory",
            "Remember something",
            "Take new knowledge into the memory without repeating or contradicting what is known.",
            (Argument("text", "What to remember."), _TOPIC, Argument("source", "Where it comes from.")),
            _ingest,
        ),
        Prompt(
            "retrieve-context",
            "Recall what is known",
            "Gather what the memory knows about a topic, with sources.",
            (
                Argument(_TOPIC.name, _TOPIC.description, required=True),
                Argument("question", "What to answer from it."),
                Argument("as_of", "As things were at this time, ISO 8601."),
            ),
            _retrieve,
        ),
        Prompt(
            "correct-stale-facts",
            "Correct stale facts",
            "Find what is no longer true about a topic and put it right.",
            (
                Argument(_TOPIC.name, _TOPIC.description, required=True),
                Argument("correct_fact", "What is right now."),
            ),
            _correct,
        ),
    )
}


def get(name: str, given: dict[str, str], namespace: str) -> Json:
    """The result of `prompts/get`. Raises `UnknownName` or `Fault(INVALID_INPUT)`."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise UnknownName(f"Unknown prompt: {name[:128]}")
    _check(prompt, given)
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(prompt.steps(given), 1))
    shown = f"The tools named here are those of {namespace}; `query` may be shown to you as `{namespace}_query`."
    text = f"{prompt.description}\n\n{_NOTHING_YET} {shown}\n\n{steps}"
    return {
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _check(prompt: Prompt, given: dict[str, str]) -> None:
    known = {argument.name for argument in prompt.arguments}
    for name in given:
        if name not in known or len(given[name]) > _LONGEST:
            raise _refused(prompt, name[:64], "is not a known argument" if name not in known else "is too long")
    for argument in prompt.arguments:
        if argument.required and not given.get(argument.name, "").strip():
            raise _refused(prompt, argument.name, "is required")


def _refused(prompt: Prompt, name: str, why: str) -> Fault:
    path = f"input.{name}"
    details = {"validation_path": path, "validation_rule": "prompt"}
    known = ", ".join(argument.name for argument in prompt.arguments)
    return Fault(Kind.INVALID_INPUT, f"{path}: {why}.", details=details, suggested_fix=f"{prompt.name} takes {known}.")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


async def complete(book: Book, argument: str, begun: str) -> Json:
    """The result of `completion/complete`: known topics, or ids of entries, that begin like this."""
    values: list[str] = []
    if argument in ("topic", "id"):
        column, key = (entries.c.topic_key, fold(begun)) if argument == "topic" else (entries.c.id, begun.upper())
        shown = entries.c[argument]
        statement = select(shown).where(column.startswith(key, autoescape=True), entries.c.deleted_at.is_(None))
        statement = statement.group_by(shown).order_by(shown).limit(_MOST + 1)
        values = list((await book.connection.execute(statement)).scalars())
    return {"completion": {"values": values[:_MOST], "hasMore": len(values) > _MOST}}
