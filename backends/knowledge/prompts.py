"""The prompts: instructions for common workflows. They write nothing; each step names the tool to call."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from backends.knowledge.tables import entries
from backends.knowledge.text_keys import fold
from gateway.contract import Json
from gateway.errors import Fault, Kind, UnknownName

if TYPE_CHECKING:
    from backends.knowledge.unit_of_work import UnitOfWork

_MAX_COMPLETIONS: Final = 100
_MAX_ARGUMENT_LENGTH: Final = 20_000
_NO_WRITES_NOTICE: Final = (
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
            {"name": argument.name, "description": argument.description, "required": argument.required}
            for argument in self.arguments
        ]
        return {"name": self.name, "title": self.title, "description": self.description, "arguments": arguments}


def _ingest(arguments: dict[str, str]) -> list[str]:
    topic = f"topic {_quote(arguments['topic'])}" if "topic" in arguments else "a short topic of your choosing"
    text = (
        f"The text to remember:\n\n{arguments['text']}"
        if "text" in arguments
        else "Ask the user for the text to remember."
    )
    source = f", source {_quote(arguments['source'])}" if "source" in arguments else ""
    return [
        text,
        f"Call `query` with {topic} to see what is already known.",
        "Show the user what you would store: one fact per entry, without what is already known.",
        f"Once the user agrees, call `store` for each new fact with {topic}{source}, fitting tags and your confidence "
        "from 0 to 1; for a text of many paragraphs call `ingest` once instead.",
        "For facts that relate two things, call `relate` with subject, predicate and object. If it answers with a "
        "conflict, ask the user which fact stands and call `resolve_conflict` with the answer.",
        "Tell the user the ids of what was stored, and that `undo` reverts it.",
    ]


def _retrieve(arguments: dict[str, str]) -> list[str]:
    as_of = f" and as_of {_quote(arguments['as_of'])}" if "as_of" in arguments else ""
    question = arguments.get("question")
    return [
        f"Call `query` with topic {_quote(arguments['topic'])}{as_of}; follow next_cursor while the items still fit.",
        f"Call `query_graph` with subject {_quote(arguments['topic'])}, and once more with it as object.",
        "Prefer entries with a higher score_total and confidence; when two contradict each other, say so and name "
        "both with recorded_at.",
        f"Answer this question from what you found: {question}"
        if question
        else "Summarise what is known, the most certain first.",
        "Name the id of every entry and triple that you relied on. If nothing was found, say that nothing is known; "
        "do not guess. Call no writing tool.",
    ]


def _correct(arguments: dict[str, str]) -> list[str]:
    topic, correct = _quote(arguments["topic"]), arguments.get("correct_fact")
    fact = f"The correct fact: {correct}" if correct else "Ask the user for the correct fact."
    return [
        fact,
        f"Call `query` with topic {topic} and `query_graph` with subject {topic} to find what is stale.",
        "Call `history` with entity_id for each, to see who stated it and when.",
        "Show the user each stale fact with its id beside the correction, and wait for agreement.",
        "For a fact that was wrong, call `update` (entries) or `update_triple` (triples) with expected_version as you "
        "read it. For one that was right until lately, call `update` with valid_to and `store` the new one with "
        "valid_from. For one that should not be there, call `delete`.",
        "If a tool answers `conflict`, another writer changed the fact first: read again and repeat. Report the ids of "
        "what changed, and that `undo` reverts it.",
    ]


_TOPIC: Final = Argument("topic", "The topic; completes to known topics.")
PROMPTS: Final = {
    prompt.name: prompt
    for prompt in (
        Prompt(
            "ingest-memory",
            "Remember something",
            "Add new knowledge to the memory without repeating or contradicting known facts.",
            (Argument("text", "The text to remember."), _TOPIC, Argument("source", "Source of the text.")),
            _ingest,
        ),
        Prompt(
            "retrieve-context",
            "Recall what is known",
            "Retrieve the known facts about a topic, with sources.",
            (
                Argument(_TOPIC.name, _TOPIC.description, required=True),
                Argument("question", "The question to answer."),
                Argument("as_of", "Only facts valid at this time, ISO 8601."),
            ),
            _retrieve,
        ),
        Prompt(
            "correct-stale-facts",
            "Correct stale facts",
            "Find facts about a topic that are no longer true and correct them.",
            (
                Argument(_TOPIC.name, _TOPIC.description, required=True),
                Argument("correct_fact", "The correct fact."),
            ),
            _correct,
        ),
    )
}


def get(name: str, arguments: dict[str, str], namespace: str) -> Json:
    """Return the result of `prompts/get`. Raises `UnknownName` or `Fault(INVALID_INPUT)`."""
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise UnknownName(f"Unknown prompt: {name[:128]}")
    _validate(prompt, arguments)
    steps = "\n".join(f"{number}. {step}" for number, step in enumerate(prompt.steps(arguments), 1))
    naming = f"The tools named here are those of {namespace}; `query` may be shown to you as `{namespace}_query`."
    text = f"{prompt.description}\n\n{_NO_WRITES_NOTICE} {naming}\n\n{steps}"
    return {
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _validate(prompt: Prompt, arguments: dict[str, str]) -> None:
    known = {argument.name for argument in prompt.arguments}
    for name in arguments:
        if name not in known or len(arguments[name]) > _MAX_ARGUMENT_LENGTH:
            raise _invalid_argument(
                prompt, name[:64], "is not a known argument" if name not in known else "is too long"
            )
    for argument in prompt.arguments:
        if argument.required and not arguments.get(argument.name, "").strip():
            raise _invalid_argument(prompt, argument.name, "is required")


def _invalid_argument(prompt: Prompt, name: str, reason: str) -> Fault:
    path = f"input.{name}"
    details = {"validation_path": path, "validation_rule": "prompt"}
    known = ", ".join(argument.name for argument in prompt.arguments)
    return Fault(
        Kind.INVALID_INPUT, f"{path}: {reason}.", details=details, suggested_fix=f"{prompt.name} takes {known}."
    )


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


async def complete(unit: "UnitOfWork", argument: str, prefix: str) -> Json:
    """Return the result of `completion/complete`: topics or entry ids that start with the prefix."""
    values: list[str] = []
    if argument in ("topic", "id"):
        column, key = (entries.c.topic_key, fold(prefix)) if argument == "topic" else (entries.c.id, prefix.upper())
        shown = entries.c[argument]
        statement = select(shown).where(column.startswith(key, autoescape=True), entries.c.deleted_at.is_(None))
        statement = statement.group_by(shown).order_by(shown).limit(_MAX_COMPLETIONS + 1)
        values = list((await unit.connection.execute(statement)).scalars())
    return {"completion": {"values": values[:_MAX_COMPLETIONS], "hasMore": len(values) > _MAX_COMPLETIONS}}
