"""The embedders: they turn texts into vectors. Import this module only off the event loop: it loads numpy and a model.

Both models come from packages that carry their weights, so nothing is downloaded at run time. docs/knowledge.md
compares them.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.contract.embedder_packages import MINILM, WORDLLAMA

Vectors = NDArray[np.float32]
MAX_CHARACTERS: Final = 4_000
"""Length of text that a vector covers at most."""
_MAX_TOKENS: Final = 256
_SCALE: Final = 127.0


class Embedder(Protocol):
    """Computes vectors of texts. Not thread-safe: one call at a time."""

    @property
    def name(self) -> str:
        """Name and version of the model; vectors of different models cannot be compared."""
        ...

    @property
    def min_similarity(self) -> float:
        """Cosine below which two texts have nothing in common."""
        ...

    def embed(self, texts: list[str]) -> Vectors:
        """Return one unit vector per text."""
        ...


class MiniLmEmbedder:
    """The sentence transformer all-MiniLM-L6-v2 with 8-bit weights on onnxruntime, in one thread."""

    name = "minilm-l6-v2-int8"
    min_similarity = 0.15

    def __init__(self) -> None:
        # Only the data files of these packages are used; their code is not imported.
        model, tokenizer = (Path(_folder(package)) for package in MINILM[:2])
        tokenizers: Any = importlib.import_module("tokenizers")
        onnxruntime: Any = importlib.import_module("onnxruntime")
        (vocabulary,) = tokenizer.glob("embeddings/data/*/tokenizer.json")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        # Without the arena, memory of a large batch is returned.
        options.enable_cpu_mem_arena = False
        self._session = onnxruntime.InferenceSession(
            str(model / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {each.name for each in self._session.get_inputs()}

    def embed(self, texts: list[str]) -> Vectors:
        encoded = self._tokenizer.encode_batch([text[:MAX_CHARACTERS] for text in texts])
        ids = np.array([each.ids for each in encoded], np.int64)
        mask = np.array([each.attention_mask for each in encoded], np.int64)
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (tokens, *_) = self._session.run(None, {name: values[name] for name in self._inputs})
        weights = mask[:, :, None].astype(np.float32)
        return _unit((tokens * weights).sum(axis=1) / weights.sum(axis=1))


class WordLlamaEmbedder:
    """Static token embeddings of the package `wordllama`, averaged over the tokens of a text."""

    name = "wordllama-l2-supercat-256"
    min_similarity = 0.08

    def __init__(self) -> None:
        wordllama: Any = importlib.import_module(WORDLLAMA[0])
        # The package looks for its own files in a folder that it does not ship, then downloads them.
        shipped = Path(wordllama.__file__).parent
        load: Callable[..., Any] = wordllama.WordLlama.load
        self._model = load(config="l2_supercat", dim=256, cache_dir=shipped, disable_download=True)

    def embed(self, texts: list[str]) -> Vectors:
        return _unit(self._model.embed([text[:MAX_CHARACTERS] for text in texts], norm=False))


def _unit(vectors: Any) -> Vectors:
    found = np.asarray(vectors, np.float32)
    # A text without any known token has no direction: it stays zero and resembles nothing.
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-9))


def quantize(vectors: Vectors) -> list[bytes]:
    """Return each unit vector as 8-bit integers: a quarter of the size, with an error of cosines below 0.01."""
    codes = np.clip(np.rint(vectors * _SCALE), -127, 127).astype(np.int8)
    return [code.tobytes() for code in codes]


def load(model: str) -> Embedder:
    return MiniLmEmbedder() if model == "minilm" else WordLlamaEmbedder()


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return next(iter(spec.submodule_search_locations))
