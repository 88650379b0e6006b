"""A mistake that validation found, as a line: where it was written, which setting it is, what was expected."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.settings.backends import KINDS
from gateway.settings.merge import MergedValues
from gateway.settings.settings import Settings
from gateway.settings.values import Where, dotted, nearest

_EXPECTED: Final[Mapping[str, str]] = {
    "missing": "is required",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "string_too_short": "may not be empty",
    "path_type": "expected a path",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "needs at least one",
    "ip_any_network": "expected a network such as 10.0.0.0/8",
}


def explain(error: ErrorDetails, gathered: MergedValues) -> Iterator[str]:
    """The lines of one mistake."""
    at = error["loc"]
    if error["type"] == "problems":
        for below, message in error["ctx"]["problems"]:  # pyright: ignore[reportTypedDictNotRequiredAccess]
            yield _line((*at, *below), message, gathered)
    elif error["type"] == "extra_forbidden":
        yield _line(at, f"unknown key{_elsewhere(at) or nearest(str(at[-1]), _known_keys(at))}", gathered)
    elif error["type"] != "default_factory_not_called":  # the value it derives from is reported itself
        yield _line(at, _EXPECTED.get(error["type"]) or _in_our_words(error["msg"]), gathered)


def _line(at: Where, message: str, gathered: MergedValues) -> str:
    at = tuple(part for part in _untagged(at) if part != "[key]")
    return f"{gathered.origin(at)}: {dotted(at)}: {message}"


def _untagged(at: Where) -> Where:
    """Without the word that validation inserts for the kind of backend it chose."""
    return (*at[:2], *at[3:]) if at[0] == "backends" and at[2:3] and at[2] in KINDS and len(at) > 3 else at


def _elsewhere(at: Where) -> str | None:
    """Of a key that another kind of backend has, such as `options`: whose it is."""
    if at[0] != "backends" or len(at) != 4 or at[2] not in KINDS:
        return None
    having = [kind for kind, model in KINDS.items() if at[3] in model.model_fields]
    return f"; only an entry with {' or '.join(having)} has it" if having else None


def _known_keys(at: Where) -> list[str]:
    """The keys that would be right where an unknown one was found."""
    models: list[type[BaseModel]] = [Settings]
    for part in at[:-1]:
        kind = KINDS.get(str(part)) if len(models) > 1 else None
        below = [model.model_fields[str(part)].annotation for model in models if part in model.model_fields]
        models = [kind] if kind else [found for annotation in below for found in _models(annotation)] or models
    return [name for model in models for name in model.model_fields]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _in_our_words(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be ", "expected ")
    return message.replace("expected greater", "expected a value greater").replace(
        "expected less", "expected a value less"
    )
