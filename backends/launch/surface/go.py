"""The public surface of a Go module: exported names of every package that is neither internal nor a command."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Doc, Parameter, Symbol
from backends.launch.surface.source import Source, one_line, wrap

_SKIPPED: Final = frozenset({"internal", "testdata", "vendor", "examples", "example", "_examples", "cmd"})
_PLATFORM: Final = re.compile(
    r"_(?:windows|darwin|freebsd|netbsd|openbsd|plan9|js|wasm|solaris|aix|android|ios|dragonfly|illumos|wasip1|wasi|zos"
    r"|386|arm|arm64|mips\w*|ppc64\w*|riscv64|s390x|loong64|stub|other|notunix|appengine)\.go$"
)


def extract(files: Mapping[str, bytes]) -> list[Symbol]:
    root = _module_path(files.get("go.mod", b"").decode("utf-8", "replace"))
    packages: dict[str, list[Source]] = defaultdict(list)
    for path, data in sorted(files.items()):
        pure = PurePosixPath(path)
        is_source = pure.suffix == ".go" and not path.endswith("_test.go") and not _PLATFORM.search(path)
        hidden = any(part in _SKIPPED or part.startswith(("_", ".")) for part in pure.parts[:-1])
        if is_source and not hidden and b"//go:build ignore" not in data[:2000]:
            packages[str(pure.parent)].append(Source.parse(path, data, "go"))
    nested = {str(PurePosixPath(path).parent) for path in files if path.endswith("/go.mod")}
    found: list[Symbol] = []
    for folder, sources in sorted(packages.items()):
        own_module = any(folder == each or folder.startswith(f"{each}/") for each in nested)
        names = {name for source in sources if (name := _package_name(source))}
        if "main" in names or own_module:
            continue
        module = root if folder == "." else f"{root}/{folder}".strip("/")
        found.extend(_package(sources, module or next(iter(names), folder)))
    return found


def _module_path(go_mod: str) -> str:
    found = re.search(r"^module\s+\"?([^\s\"]+)", go_mod, re.MULTILINE)
    return found[1] if found else ""


def _package_name(source: Source) -> str:
    clause = next((node for node in source.root.named_children if node.type == "package_clause"), None)
    return source.text(clause).removeprefix("package").strip() if clause is not None else ""


def _package(sources: list[Source], module: str) -> Iterator[Symbol]:
    types: set[str] = set()
    seen: set[tuple[str, str]] = set()
    described = False
    collected: list[Symbol] = []
    for source in sources:
        for node in source.root.named_children:
            if node.type == "package_clause" and not described:
                doc = doc_comments.parse(source.comment_before(node), "go")
                if doc.blocks and not doc.blocks[0].text.startswith("Copyright"):
                    described = True
                    line = source.line(node)
                    collected.append(Symbol(module, "module", module, source.path, line, "", doc=doc))
            else:
                collected.extend(_declarations(source, node, module))
    types = {symbol.name for symbol in collected if symbol.kind in ("struct", "interface", "type")}
    for symbol in collected:
        key = (symbol.container, symbol.name)
        if key not in seen and (not symbol.container or symbol.container in types):
            seen.add(key)
            yield symbol


def _declarations(source: Source, node: Any, module: str) -> Iterator[Symbol]:
    if node.type in ("function_declaration", "method_declaration"):
        name = source.field(node, "name")
        receiver = _receiver(source.field(node, "receiver"))
        if name[:1].isupper() and (not receiver or receiver[:1].isupper()):
            yield _function(source, node, module, name, receiver)
    elif node.type == "type_declaration":
        specs = [child for child in node.named_children if child.type in ("type_spec", "type_alias")]
        for spec in specs:
            yield from _type(
                source,
                node,
                spec,
                module,
                is_grouped=len(specs) > 1 or b"(" in source.data[node.start_byte : spec.start_byte],
            )
    elif node.type in ("const_declaration", "var_declaration"):
        yield from _values(source, node, module)


def _receiver(text: str) -> str:
    return re.sub(r"\[.*\]", "", text.strip("() ")).split(" ")[-1].lstrip("*") if text else ""


def _function(source: Source, node: Any, module: str, name: str, receiver: str) -> Symbol:
    body = node.child_by_field_name("body")
    text = source.between(node.start_byte, body.start_byte if body is not None else node.end_byte)
    parameters = tuple(_parameters(source, node.child_by_field_name("parameters")))
    result = one_line(source.field(node, "result"))
    doc = doc_comments.parse(source.comment_before(node), "go")
    kind = "method" if receiver else "function"
    return Symbol(
        name, kind, module, source.path, source.line(node), wrap(one_line(text)), receiver, parameters, result, doc
    )


def _parameters(source: Source, node: Any) -> Iterator[Parameter]:
    for each in node.named_children if node is not None else ():
        if each.type not in ("parameter_declaration", "variadic_parameter_declaration"):
            continue
        kind = one_line(source.field(each, "type"))
        kind = f"...{kind}" if each.type.startswith("variadic") else kind
        names = [source.text(child) for child in each.children_by_field_name("name")]
        yield from (Parameter(name, kind) for name in names or [""])


def _type(source: Source, declaration: Any, spec: Any, module: str, *, is_grouped: bool) -> Iterator[Symbol]:
    name = source.field(spec, "name")
    if not name[:1].isupper():
        return
    inner: Any = spec.child_by_field_name("type")
    kind = {"struct_type": "struct", "interface_type": "interface"}.get(inner.type if inner is not None else "", "type")
    comment = source.comment_before(spec) or ("" if is_grouped else source.comment_before(declaration))
    head = one_line(source.between(spec.start_byte, inner.start_byte)) if inner is not None else name
    shown = {"struct": " struct", "interface": " interface"}.get(kind, "")
    signature = f"type {head}{shown}" if shown else f"type {one_line(source.text(spec))}"
    doc = doc_comments.parse(comment, "go")
    yield Symbol(name, kind, module, source.path, source.line(spec), signature[:300], doc=doc)
    if kind == "struct":
        for field in _descendants(inner, "field_declaration"):
            for identifier in field.children_by_field_name("name"):
                label = source.text(identifier)
                if label[:1].isupper():
                    field_type = one_line(source.field(field, "type"))
                    field_doc = doc_comments.parse(source.comment_before(field), "go")
                    yield Symbol(
                        label, "field", module, source.path, source.line(field), f"{label} {field_type}"[:300], name,
                        (), field_type, field_doc,
                    )  # fmt: skip
    elif kind == "interface":
        for method in _descendants(inner, "method_elem"):
            label = source.field(method, "name")
            if label[:1].isupper():
                parameters = tuple(_parameters(source, method.child_by_field_name("parameters")))
                method_doc = doc_comments.parse(source.comment_before(method), "go")
                yield Symbol(
                    label, "method", module, source.path, source.line(method), wrap(one_line(source.text(method))),
                    name, parameters, one_line(source.field(method, "result")), method_doc,
                )  # fmt: skip


def _descendants(node: Any, kind: str) -> Iterator[Any]:
    for child in node.named_children:
        if child.type == kind:
            yield child
        elif child.type == "field_declaration_list":
            yield from _descendants(child, kind)


def _values(source: Source, node: Any, module: str) -> Iterator[Symbol]:
    word = "const" if node.type == "const_declaration" else "var"
    kind = "constant" if word == "const" else "variable"
    specs = [
        each
        for child in node.named_children
        for each in (child.named_children if child.type == "var_spec_list" else [child])
    ]
    specs = [each for each in specs if each.type in ("const_spec", "var_spec")]
    for spec in specs:
        comment = source.comment_before(spec) or (source.comment_before(node) if len(specs) == 1 else "")
        doc = doc_comments.parse(comment, "go") if comment else Doc()
        for identifier in spec.children_by_field_name("name"):
            name = source.text(identifier)
            if name[:1].isupper():
                text = one_line(source.text(spec))
                shown = f"{word} {text}" if len(text) <= 120 else f"{word} {name}"
                yield Symbol(name, kind, module, source.path, source.line(spec), shown, doc=doc)
