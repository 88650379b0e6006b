"""Reads the flags `dryRun` and `approved` of a request's `_meta`. All packages and backends read them here."""

from typing import Final

from gateway.errors import Fault, Kind

TRUE_WORDS: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE_WORDS: Final = ("0", "f", "F", "FALSE", "false", "False")
_WORDS: Final = {**dict.fromkeys(TRUE_WORDS, True), **dict.fromkeys(FALSE_WORDS, False)}


def read_flag(meta: dict[str, object], name: str) -> bool:
    """Return the flag; False if it is absent. Raises `Fault(INVALID_INPUT)` for any other value than a boolean or one
    of the words above: a misspelled `dryRun` must not become a real change."""
    if name not in meta:
        return False
    value = meta[name]
    if value is True or value is False:
        return value
    if isinstance(value, str) and (flag := _WORDS.get(value)) is not None:
        return flag
    raise Fault(
        Kind.INVALID_INPUT,
        f"_meta.{name} must be a boolean or one of the words {', '.join(TRUE_WORDS + FALSE_WORDS)}.",
        details={"validation_path": f"_meta.{name}", "validation_rule": "boolean"},
        suggested_fix=f'Send "{name}": true or "{name}": false.',
    )
