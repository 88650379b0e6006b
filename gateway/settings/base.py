"""What every part of the settings has in common: closed, frozen, with secrets that may lie in files."""

from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from gateway.settings.values import Tree, Where, problems


class Section(BaseModel):
    """A closed, frozen part of the settings. A secret `x` may be given as `x_file`, the file that holds it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        read = dict(cast("Tree", data))
        for name in cls.model_fields:
            given = read.get(f"{name}_file")
            if f"{name}_file" not in cls.model_fields or given is None:
                continue
            if isinstance(given, dict):
                read[name] = _secrets(name, read.get(name), cast("Tree", given))
            elif read.get(name) is not None:
                raise problems(((f"{name}_file",), f"give {name} or {name}_file, not both"))
            else:
                read[name] = _secret((f"{name}_file",), given)
        return read


def _secrets(name: str, given: Any, files: Tree) -> Tree:
    direct = cast("Tree", given) if isinstance(given, dict) else {}
    if twice := [key for key in files if key in direct]:
        raise problems(*(((f"{name}_file", key), f"give it in {name} or {name}_file, not both") for key in twice))
    return direct | {key: _secret((f"{name}_file", key), path) for key, path in files.items()}


def _secret(at: Where, path: Any) -> str:
    try:
        return Path(str(path)).read_text("utf-8").strip()
    except OSError as exc:
        raise problems((at, f"cannot read that file: {exc.strerror}")) from None
    except UnicodeDecodeError:
        raise problems((at, "that file is not UTF-8 text")) from None
