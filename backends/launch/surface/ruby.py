"""The public surface of a Ruby library: classes, modules, constants and methods below `lib`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Parameter, Symbol
from backends.launch.surface.source import Source, one_line, split_list, wrap

_ACCESSORS: Final = frozenset({"attr_reader", "attr_writer", "attr_accessor"})


def extract(files: Mapping[str, bytes], product: str) -> list[Symbol]:
    found: dict[tuple[str, str], Symbol] = {}
    has_lib = any(path.startswith("lib/") for path in files)
    for path, data in sorted(files.items()):
        if (
            path.endswith(".rb")
            and (path.startswith("lib/") or not has_lib)
            and not re.search(r"(?:^|/)(?:test|spec)s?/|_(?:test|spec)\.rb$", path)
        ):
            source = Source.parse(path, data, "ruby")
            for symbol in _Reader(source, product).read(source.root, ""):
                key = (symbol.qualified_name, symbol.kind)
                known = found.get(key)
                if known is None or (not known.doc.blocks and symbol.doc.blocks):
                    found[key] = symbol
    return list(found.values())


class _Reader:
    def __init__(self, source: Source, module: str) -> None:
        self._source = source
        self._module = module

    def read(self, body: Any, container: str, *, is_singleton: bool = False) -> Iterator[Symbol]:
        source = self._source
        hidden_names = self._hidden_names(body)
        is_public = True
        for node in body.named_children:
            text = source.text(node)
            if node.type == "identifier" and text in ("private", "protected", "public", "private_class_method"):
                is_public = text == "public"
            elif node.type in ("class", "module"):
                yield from self._type(node, container, hidden_names)
            elif node.type == "singleton_class":
                inner = node.child_by_field_name("body")
                if inner is not None:
                    yield from self.read(inner, container, is_singleton=True)
            elif node.type in ("method", "singleton_method") and (is_public or node.type == "singleton_method"):
                yield from self._method(node, container, hidden_names, is_singleton=is_singleton)
            elif node.type == "call" and source.field(node, "method") in _ACCESSORS and is_public:
                yield from self._accessors(node, container, hidden_names)
            elif node.type == "assignment" and container:
                name = source.field(node, "left")
                if re.fullmatch(r"[A-Z]\w*", name) and name not in hidden_names:
                    yield self._symbol(node, name, "constant", container, one_line(text)[:120], ())
            elif node.type in ("body_statement", "begin_block"):
                yield from self.read(node, container)

    def _hidden_names(self, body: Any) -> set[str]:
        text = self._source.text(body)
        calls = re.findall(
            r"^\s*(?:private_constant|private_class_method|private|protected)\s+((?::\w+[?!]?,?\s*)+)",
            text,
            re.MULTILINE,
        )
        return {name for call in calls for name in re.findall(r":(\w+[?!]?)", call)}

    def _type(self, node: Any, container: str, hidden: set[str]) -> Iterator[Symbol]:
        source = self._source
        name = source.field(node, "name").replace("::", ".")
        comment = source.comment_before(node)
        if not name or name in hidden or doc_comments.is_hidden(comment):
            return
        kind = "class" if node.type == "class" else "trait"
        base = one_line(source.field(node, "superclass"))
        word = "class" if node.type == "class" else "module"
        signature = f"{word} {name.replace('.', '::')}" + (f" {base}" if base else "")
        yield self._symbol(node, name, kind, container, signature, ())
        body = node.child_by_field_name("body")
        if body is not None:
            yield from self.read(body, f"{container}.{name}" if container else name)

    def _method(self, node: Any, container: str, hidden: set[str], *, is_singleton: bool) -> Iterator[Symbol]:
        source = self._source
        name = source.field(node, "name")
        if name in hidden or name.startswith("_") or doc_comments.is_hidden(source.comment_before(node)):
            return
        inside = source.field(node, "parameters").strip().removeprefix("(").removesuffix(")")
        parameters = tuple(_parameter(part) for part in split_list(inside))
        own = "self." if is_singleton or node.type == "singleton_method" else ""
        signature = wrap(one_line(f"def {own}{name}({inside})" if inside else f"def {own}{name}"))
        kind = "constructor" if name == "initialize" else "method" if container else "function"
        yield self._symbol(node, "new" if kind == "constructor" else name, kind, container, signature, parameters)

    def _accessors(self, node: Any, container: str, hidden: set[str]) -> Iterator[Symbol]:
        word = self._source.field(node, "method")
        for name in re.findall(r":(\w+)", self._source.field(node, "arguments")):
            if name not in hidden:
                yield self._symbol(node, name, "property", container, f"{word} :{name}", ())

    def _symbol(
        self, node: Any, name: str, kind: str, container: str, signature: str, parameters: tuple[Parameter, ...]
    ) -> Symbol:
        source = self._source
        comment = source.comment_before(node)
        if (
            not comment
            and node.parent is not None
            and node.parent.type == "body_statement"
            and node.prev_named_sibling is None
        ):
            comment = source.comment_before(node.parent)
        doc = (
            doc_comments.parse(comment, "ruby")
            if "frozen_string_literal" not in comment
            else doc_comments.parse("", "ruby")
        )
        return Symbol(
            name, kind, self._module, source.path, source.line(node), signature, container, parameters, "", doc
        )


def _parameter(text: str) -> Parameter:
    name, separator, default = text.partition("=")
    if separator:
        return Parameter(name.strip(), "", default.strip())
    name, separator, default = text.partition(":")
    return Parameter(name.strip(), "", default.strip()) if separator else Parameter(text.strip())
