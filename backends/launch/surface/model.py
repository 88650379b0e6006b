"""The public surface of a product: its symbols with signature, parameters, documentation and source line."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from gateway.contract import Json

BlockKind = Literal["text", "item", "code", "heading"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a documentation text: a paragraph, a list item, a code example or a heading, as safe Markdown."""

    kind: BlockKind
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str = ""
    default: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Doc:
    """The parsed documentation of a symbol."""

    blocks: tuple[Block, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    """Type, default and description by parameter name."""
    returns: str = ""
    return_type: str = ""
    raises: tuple[tuple[str, str], ...] = ()
    deprecated: str | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """A public symbol at its source line. `container` is the qualified name of its class, or empty."""

    name: str
    kind: str
    module: str
    path: str
    line: int
    signature: str
    container: str = ""
    parameters: tuple[Parameter, ...] = ()
    return_type: str = ""
    doc: Doc = Doc()

    @property
    def qualified_name(self) -> str:
        return f"{self.container}.{self.name}" if self.container else self.name

    def as_json(self) -> Json:
        doc = self.doc
        return {
            "name": self.name,
            "qualified_name": self.qualified_name,
            "kind": self.kind,
            "module": self.module,
            "container": self.container,
            "path": self.path,
            "line": self.line,
            "signature": self.signature,
            "parameters": [asdict(each) for each in self._documented_parameters()],
            "returns": {"type": self.return_type or doc.return_type, "description": doc.returns},
            "raises": [{"type": name, "description": text} for name, text in doc.raises],
            "deprecated": doc.deprecated,
            "blocks": [asdict(block) for block in doc.blocks],
        }

    def _documented_parameters(self) -> list[Parameter]:
        """Return the parameters of the signature, completed by their documentation."""
        completed: list[Parameter] = []
        for each in self.parameters:
            known = self.doc.parameters.get(each.name.lstrip("*.&$#").removesuffix("?"), Parameter(each.name))
            completed.append(
                Parameter(each.name, each.type or known.type, each.default or known.default, known.description)
            )
        return completed


CONTAINERS = frozenset({"class", "interface", "struct", "enum", "trait", "protocol", "object", "record", "annotation"})
"""Kinds of symbols that have members and a page of their own."""
