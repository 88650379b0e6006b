"""The embedder: turns texts into vectors. Import this module only off the event loop: it loads numpy and the model."""

from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import wordllama  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
MAX_CHARACTERS: Final = 4_000
"""Length of text that a vector covers."""
_SCALE: Final = 127.0


class Embedder(Protocol):
    """Computes vectors of texts. Not thread-safe: one call at a time."""

    @property
    def name(self) -> str:
        """Name and version of the model; vectors of different models cannot be compared."""
        ...

    def embed(self, texts: list[str]) -> Vectors:
        """Return one unit vector per text."""
        ...


class WordLlamaEmbedder:
    """Static token embeddings of the package `wordllama`, which carries its weights; averaged over a text's tokens."""

    name = "wordllama-l2-supercat-256"

    def __init__(self) -> None:
        # The package looks for its own files in a folder that it does not ship, then downloads them.
        shipped = Path(wordllama.__file__).parent
        model: Any = wordllama.WordLlama
        self._model: Any = model.load(config="l2_supercat", dim=256, cache_dir=shipped, disable_download=True)

    def embed(self, texts: list[str]) -> Vectors:
        found: Vectors = self._model.embed([text[:MAX_CHARACTERS] for text in texts], norm=True)
        # A text without any known token has no direction.
        return np.nan_to_num(found.astype(np.float32))


def quantize(vectors: Vectors) -> list[bytes]:
    """Return each unit vector as 8-bit integers: a quarter of the size, with an error of cosines below 0.01."""
    codes = np.clip(np.rint(vectors * _SCALE), -127, 127).astype(np.int8)
    return [code.tobytes() for code in codes]


def load() -> Embedder:
    return WordLlamaEmbedder()
