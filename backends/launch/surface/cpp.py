"""The public surface of C++ headers: types with public members, functions, enumerations and aliases."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Parameter, Symbol
from backends.launch.surface.source import Source, matching, one_line, split_list, type_first, wrap

_HEADERS: Final = (".h", ".hpp", ".hh", ".hxx", ".ipp", ".inl")
_HIDDEN_NAMESPACES: Final = frozenset({"detail", "details", "internal", "impl", "priv", "private", "_detail"})
_SKIPPED: Final = frozenset(
    {"test", "tests", "examples", "example", "third_party", "thirdparty", "vendor", "deps", "benchmark", "benchmarks"}
)
_WRAPPERS: Final = frozenset({
    "translation_unit", "declaration_list", "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif",
    "linkage_specification",
})  # fmt: skip
_TYPES: Final = {
    "class_specifier": "class",
    "struct_specifier": "struct",
    "union_specifier": "struct",
    "enum_specifier": "enum",
}


def extract(files: Mapping[str, bytes], product: str) -> list[Symbol]:
    found: dict[tuple[str, str, str], Symbol] = {}
    for path, data in sorted(files.items()):
        parts = PurePosixPath(path).parts
        hidden = any(part in _SKIPPED or part in _HIDDEN_NAMESPACES for part in parts[:-1])
        if not path.endswith(_HEADERS) or hidden:
            continue
        source = Source.parse(path, data, "cpp")
        for symbol in _read(source, source.root, "", "", product):
            found.setdefault((symbol.module, symbol.qualified_name, symbol.signature), symbol)
    return list(found.values())


def _read(
    source: Source, node: Any, namespace: str, container: str, product: str, access: str = "public"
) -> Iterator[Symbol]:
    for child in node.named_children:
        if child.type == "access_specifier":
            access = source.text(child).strip(": ")
            continue
        if child.type in _WRAPPERS:
            yield from _read(source, child, namespace, container, product, access)
        elif child.type == "namespace_definition":
            name = source.field(child, "name")
            body = child.child_by_field_name("body")
            if name and body is not None and _HIDDEN_NAMESPACES.isdisjoint(name.split("::")):
                inner = f"{namespace}::{name}" if namespace else name
                yield from _read(source, body, inner, container, product)
        elif access != "private":
            yield from _declaration(source, child, child, namespace, container, product)


def _declaration(
    source: Source, outer: Any, node: Any, namespace: str, container: str, product: str
) -> Iterator[Symbol]:
    if node.type == "template_declaration":
        for child in node.named_children:
            if child.type in (*_TYPES, "declaration", "function_definition", "alias_declaration", "field_declaration"):
                yield from _declaration(source, outer, child, namespace, container, product)
        return
    module = namespace or product
    comment = source.comment_before(outer)
    if doc_comments.is_hidden(comment):
        return
    doc = doc_comments.parse(comment, "cpp")
    line = source.line(node)
    if node.type in _TYPES or (node.type in ("declaration", "field_declaration") and _inner_type(node) is not None):
        inner = node if node.type in _TYPES else _inner_type(node)
        name, body = source.field(inner, "name"), inner.child_by_field_name("body")
        if not name or body is None or name.startswith("_"):
            return
        kind = _TYPES[inner.type]
        signature = one_line(source.between(outer.start_byte, body.start_byte))
        yield Symbol(name, kind, module, source.path, line, signature[:400], container, doc=doc)
        qualified = f"{container}.{name}" if container else name
        if kind == "enum":
            for item in body.named_children:
                if item.type == "enumerator":
                    label = source.field(item, "name")
                    item_doc = doc_comments.parse(source.comment_before(item), "cpp")
                    yield Symbol(
                        label,
                        "variant",
                        module,
                        source.path,
                        source.line(item),
                        one_line(source.text(item))[:120],
                        qualified,
                        doc=item_doc,
                    )
        else:
            default = "private" if kind == "class" else "public"
            yield from _read(source, body, namespace, qualified, product, default)
        return
    if node.type in ("type_definition", "alias_declaration"):
        name = source.field(node, "name") or source.field(node, "declarator")
        if re.fullmatch(r"[A-Za-z]\w*", name):
            yield Symbol(name, "type", module, source.path, line, one_line(source.text(node))[:300], container, doc=doc)
        return
    if node.type not in ("declaration", "function_definition", "field_declaration"):
        return
    body = node.child_by_field_name("body")
    text = source.between(outer.start_byte, body.start_byte if body is not None else node.end_byte)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    function = _function(node)
    if function is None:
        if node.type == "field_declaration" and container:
            name = source.field(node, "declarator")
            if re.fullmatch(r"[A-Za-z]\w*", name):
                yield Symbol(name, "field", module, source.path, line, one_line(text)[:200], container, doc=doc)
        return
    name = source.field(function, "declarator")
    is_member_definition = "::" in name
    if not re.fullmatch(r"~?[A-Za-z]\w*|operator.+", name) or is_member_definition or name.startswith("~"):
        return
    signature = one_line(re.sub(r"\)\s*:\s*\w.*$", ")", text, flags=re.DOTALL))
    kind = "method" if container else "function"
    if container and name == container.rpartition(".")[2]:
        kind = "constructor"
    at = signature.find("(", max(0, signature.find(name)))
    end = matching(signature, at) if at >= 0 else None
    inside = split_list(signature[at + 1 : end]) if end is not None else []
    parameters = tuple(_parameter(part) for part in inside if part != "void")
    returns = one_line(source.field(node, "type"))
    yield Symbol(name, kind, module, source.path, line, wrap(signature[:900]), container, parameters, returns, doc)


def _inner_type(node: Any) -> Any:
    """Return the type that a declaration defines, or None."""
    inner = node.child_by_field_name("type")
    is_type = inner is not None and inner.type in _TYPES and inner.child_by_field_name("body") is not None
    return inner if is_type else None


def _function(node: Any) -> Any:
    """Return the declarator of a function, or None."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (child for child in declarator.named_children if child.type.endswith("declarator")), None
        )
    return declarator


def _parameter(text: str) -> Parameter:
    found = type_first(text)
    return found if found.name or found.type else Parameter("", text)
