"""Base class of all settings sections: immutable, without unknown keys, with secrets that may be read from files."""

from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from gateway.settings.values import SettingPath, Tree, problems


class Section(BaseModel):
    """An immutable section that rejects unknown keys. A secret `x` can be set as `x_file`, the path of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        read = dict(cast("Tree", data))
        for name in cls.model_fields:
            files = read.get(f"{name}_file")
            if f"{name}_file" not in cls.model_fields or files is None:
                continue
            if isinstance(files, dict):
                read[name] = _read_secret_files(name, read.get(name), cast("Tree", files))
            elif read.get(name) is not None:
                raise problems(((f"{name}_file",), f"set either {name} or {name}_file, not both"))
            else:
                read[name] = _read_secret_file((f"{name}_file",), files)
        return read


def _read_secret_files(name: str, values: Any, files: Tree) -> Tree:
    direct = cast("Tree", values) if isinstance(values, dict) else {}
    if duplicates := [key for key in files if key in direct]:
        message = f"set it in either {name} or {name}_file, not both"
        raise problems(*(((f"{name}_file", key), message) for key in duplicates))
    return direct | {key: _read_secret_file((f"{name}_file", key), path) for key, path in files.items()}


def _read_secret_file(key_path: SettingPath, path: Any) -> str:
    try:
        return Path(str(path)).read_text("utf-8").strip()
    except OSError as exc:
        raise problems((key_path, f"the file cannot be read: {exc.strerror}")) from None
    except UnicodeDecodeError:
        raise problems((key_path, "the file is not UTF-8 text")) from None
