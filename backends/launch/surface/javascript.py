"""The public surface of an npm package: what its entry points export, followed through relative modules."""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Parameter, Symbol
from backends.launch.surface.source import Source, name_first, one_line, split_list, wrap
from gateway.contract import Json

_EXTENSIONS: Final = (".d.ts", ".d.mts", ".d.cts", ".ts", ".mts", ".cts", ".tsx", ".js", ".mjs", ".cjs", ".jsx")
_KINDS: Final = {
    "function_declaration": "function", "function_signature": "function", "generator_function_declaration": "function",
    "class_declaration": "class", "abstract_class_declaration": "class", "interface_declaration": "interface",
    "type_alias_declaration": "type", "enum_declaration": "enum", "internal_module": "namespace", "module": "namespace",
    "lexical_declaration": "constant", "variable_declaration": "constant",
}  # fmt: skip
_MEMBERS: Final = {
    "method_definition": "method", "method_signature": "method", "abstract_method_signature": "method",
    "public_field_definition": "property", "property_signature": "property", "field_definition": "property",
    "call_signature": "method", "construct_signature": "constructor",
}  # fmt: skip
_MAX_DEPTH: Final = 30


def extract(files: Mapping[str, bytes]) -> list[Symbol]:
    package = _package(files)
    found: dict[tuple[str, int, str], Symbol] = {}
    surface = _Modules(files)
    name = str(package.get("name") or "module")
    for subpath, entry in _entries(package, files):
        module = name if subpath in (".", "") else f"{name}/{subpath.removeprefix('./')}"
        for export in surface.exports(entry):
            for symbol in _describe(export, module):
                key = (symbol.path, symbol.line, symbol.qualified_name)
                found.setdefault(key, symbol)
    return list(found.values())


def _package(files: Mapping[str, bytes]) -> Json:
    try:
        value: Any = json.loads(files.get("package.json", b"{}"))
    except ValueError:
        return {}
    return cast("Json", value) if isinstance(value, dict) else {}


def _entries(package: Json, files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Return (subpath, file) of every entry point, the main one first. Type declarations win over code."""
    choices: dict[str, list[str]] = {".": []}
    for key in ("types", "typings"):
        choices["."] += [package[key]] if isinstance(package.get(key), str) else []
    exports: Any = package.get("exports")
    if exports:
        table = cast("Json", exports) if isinstance(exports, dict) else {".": exports}
        table = table if any(key.startswith(".") for key in table) else {".": table}
        for subpath, target in table.items():
            if "*" not in subpath and not subpath.endswith((".json", ".css")):
                choices.setdefault(subpath, []).extend(_targets(target))
    for key in ("source", "module", "main"):
        choices["."] += [package[key]] if isinstance(package.get(key), str) else []
    choices["."] += ["src/index", "index", "lib/index", "src/main", "dist/index"]
    found: list[tuple[str, str]] = []
    for subpath, targets in choices.items():
        path = _first_file(targets, files)
        if path is not None and path not in [known for _, known in found]:
            found.append((subpath, path))
    return found


def _targets(value: Any) -> list[str]:
    """Return the files of an `exports` condition, type declarations first."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [each for item in cast("list[Any]", value) for each in _targets(item)]
    if isinstance(value, dict):
        table = cast("Json", value)
        order = sorted(
            table, key=lambda key: (not key.startswith("types"), key not in ("import", "default", "require"))
        )
        found = [each for key in order for each in _targets(table[key])]
        return sorted(found, key=lambda each: not each.endswith((".d.ts", ".d.mts", ".d.cts")))
    return []


def _first_file(targets: list[str], files: Mapping[str, bytes]) -> str | None:
    for target in targets:
        path = posixpath.normpath(target).lstrip("/")
        guesses = [path, *_declaration_of(path), *_source_of(path)]
        for guess in guesses:
            if (found := resolve(guess, files)) is not None:
                return found
    return None


def _declaration_of(path: str) -> list[str]:
    stem = re.sub(r"\.(?:mjs|cjs|jsx?|mts|cts|tsx?)$", "", path)
    return [f"{stem}.d.ts", f"{stem}.d.mts", f"{stem}.d.cts"] if stem != path and ".d." not in path else []


def _source_of(path: str) -> list[str]:
    """Guess the source of a built file that the repository does not contain."""
    stem = re.sub(r"(?:\.d)?\.(?:mjs|cjs|jsx?|mts|cts|tsx?)$", "", path)
    inner = re.sub(r"^(?:dist|lib|build|out|types|esm|cjs)/(?:(?:esm|cjs|types|src)/)?", "", stem)
    return [f"src/{inner}", f"src/{posixpath.basename(inner)}", inner]


def resolve(path: str, files: Mapping[str, bytes]) -> str | None:
    """Return the file that a module path names."""
    if path in files and path.endswith(_EXTENSIONS):
        better = next((each for each in _declaration_of(path) if each in files), None)
        return better or path
    stem = re.sub(r"\.(?:mjs|cjs|jsx?)$", "", path)
    for base in dict.fromkeys((stem, path)):
        for guess in (*(base + extension for extension in _EXTENSIONS), *(f"{base}/index{e}" for e in _EXTENSIONS)):
            if guess in files:
                return guess
    return None


@dataclass(frozen=True, slots=True)
class _Export:
    name: str
    source: Source
    node: Any
    """The declaration."""
    outer: Any
    """The statement, which the documentation comment precedes."""
    language: str


class _Modules:
    """Parsed modules and their exports."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._sources: dict[str, Source] = {}
        self._declared: dict[str, dict[str, list[_Export]]] = {}

    def exports(self, path: str, depth: int = 0) -> list[_Export]:
        source = self._source(path)
        found: list[_Export] = []
        if depth > _MAX_DEPTH:
            return found
        for node in source.root.named_children:
            if node.type == "export_statement":
                found.extend(self._statement(path, node, depth))
            elif node.type == "ambient_declaration":
                found.extend(self._ambient(path, node))
            elif node.type == "expression_statement":
                found.extend(self._common_js(path, node, depth))
        unique: dict[tuple[str, int], _Export] = {}
        for export in found:
            unique.setdefault((export.name, export.node.start_byte), export)
        return list(unique.values())

    def _source(self, path: str) -> Source:
        if path not in self._sources:
            language = "typescript" if re.search(r"\.[mc]?tsx?$", path) else "javascript"
            self._sources[path] = Source.parse(path, self._files[path], language)
        return self._sources[path]

    def _language(self, path: str) -> str:
        return "typescript" if re.search(r"\.[mc]?tsx?$", path) else "javascript"

    def _local(self, path: str, name: str) -> list[_Export]:
        """Return the declarations of a name in a module, or what it imports under this name."""
        if path not in self._declared:
            self._declared[path] = self._declarations(path)
        if name in self._declared[path]:
            return self._declared[path][name]
        return []

    def _declarations(self, path: str) -> dict[str, list[_Export]]:
        source = self._source(path)
        found: dict[str, list[_Export]] = {}
        for outer in source.root.named_children:
            nodes = [outer]
            for wrapper in ("export_statement", "ambient_declaration"):
                nodes = [each for node in nodes for each in (node.named_children if node.type == wrapper else [node])]
            for node in nodes:
                for name, declared in _named(source, node):
                    export = _Export(name, source, declared, outer, self._language(path))
                    found.setdefault(name, []).append(export)
        return found

    def _imported(self, path: str, name: str, depth: int) -> list[_Export]:
        """Follow an import of the module. Returns what the imported name exports."""
        source = self._source(path)
        for node in source.root.named_children:
            if node.type != "import_statement":
                continue
            target = self._target(path, source.field(node, "source"))
            clause = source.text(node)
            if target is None:
                continue
            for inside in re.findall(r"\{([^}]*)\}", clause):
                for part in split_list(inside):
                    original, _, alias = part.removeprefix("type ").partition(" as ")
                    if (alias or original).strip() == name:
                        return self._named_export(target, original.strip(), depth + 1)
            if re.match(rf"import\s+(?:type\s+)?{re.escape(name)}\b", clause):
                return self._named_export(target, "default", depth + 1)
            if re.search(rf"\*\s+as\s+{re.escape(name)}\b", clause):
                return self.exports(target, depth + 1)
        return []

    def _named_export(self, path: str, name: str, depth: int) -> list[_Export]:
        if depth > _MAX_DEPTH:
            return []
        return [each for each in self.exports(path, depth + 1) if each.name == name]

    def _target(self, path: str, literal: str) -> str | None:
        text = literal.strip("'\"`")
        return (
            resolve(posixpath.normpath(posixpath.join(posixpath.dirname(path), text)), self._files)
            if text.startswith(".")
            else None
        )

    def _renamed(self, exports: list[_Export], name: str) -> Iterator[_Export]:
        for each in exports:
            yield _Export(name, each.source, each.node, each.outer, each.language)

    def _statement(self, path: str, node: Any, depth: int) -> Iterator[_Export]:
        source = self._source(path)
        target = self._target(path, source.field(node, "source"))
        text = source.text(node)
        clause = next((child for child in node.named_children if child.type == "export_clause"), None)
        namespace = next((child for child in node.named_children if child.type == "namespace_export"), None)
        declaration = node.child_by_field_name("declaration")
        if clause is not None:
            for specifier in clause.named_children:
                original = source.field(specifier, "name")
                exposed = source.field(specifier, "alias") or original
                if not source.field(node, "source"):
                    exports = self._local(path, original) or self._imported(path, original, depth)
                else:
                    exports = self._named_export(target, original, depth) if target is not None else []
                yield from self._renamed(exports, exposed)
        elif namespace is not None:
            if target is not None:
                yield from self.exports(target, depth + 1)
        elif target is not None and re.match(r"export\s+(?:type\s+)?\*", text):
            yield from (each for each in self.exports(target, depth + 1) if each.name != "default")
        elif declaration is not None:
            is_default = re.match(r"export\s+default\b", text) is not None
            inner = (
                declaration.named_children[0]
                if declaration.type == "ambient_declaration" and declaration.named_children
                else declaration
            )
            for name, declared in _named(source, inner):
                yield _Export(name, source, declared, node, self._language(path))
                if is_default:
                    yield _Export("default", source, declared, node, self._language(path))
        else:
            yield from self._value(path, node, text, depth)

    def _value(self, path: str, node: Any, text: str, depth: int) -> Iterator[_Export]:
        """Handle `export default name` and `export = name`."""
        source = self._source(path)
        found = re.match(r"export\s*(?:=|default)\s*([A-Za-z_$][\w$]*)\s*;?\s*$", text)
        if found:
            local = self._local(path, found[1]) or self._imported(path, found[1], depth)
            for each in local:
                yield each
                if each.node.type in ("internal_module", "module"):
                    yield from self._inside(each)
            yield from self._renamed(
                [each for each in local if each.node.type not in ("internal_module", "module")], "default"
            )
            return
        value = node.child_by_field_name("value")
        if value is not None and value.type in ("function_expression", "arrow_function", "class"):
            name = source.field(value, "name") or _module_name(path)
            yield _Export(name, source, value, node, self._language(path))

    def _ambient(self, path: str, node: Any) -> Iterator[_Export]:
        """Yield the contents of `declare module "name"` blocks."""
        source = self._source(path)
        for child in node.named_children:
            if child.type == "module" and source.field(child, "name").startswith(("'", '"')):
                yield from self._inside(_Export("", source, child, node, self._language(path)))

    def _inside(self, namespace: _Export) -> Iterator[_Export]:
        body = namespace.node.child_by_field_name("body")
        for child in body.named_children if body is not None else ():
            inner = child.child_by_field_name("declaration") if child.type == "export_statement" else child
            for name, declared in _named(namespace.source, inner) if inner is not None else ():
                yield _Export(name, namespace.source, declared, child, namespace.language)

    def _common_js(self, path: str, node: Any, depth: int) -> Iterator[_Export]:
        source = self._source(path)
        assignment = next((child for child in node.named_children if child.type == "assignment_expression"), None)
        if assignment is None:
            return
        left, right = source.field(assignment, "left"), assignment.child_by_field_name("right")
        found = re.fullmatch(r"(?:module\.)?exports\.([A-Za-z_$][\w$]*)", left)
        while right is not None and right.type == "assignment_expression":
            right = right.child_by_field_name("right")
        if found:
            yield from self._bound(path, node, found[1], right, depth)
        elif left in ("module.exports", "exports") and right is not None:
            if right.type == "object":
                for pair in right.named_children:
                    key = source.field(pair, "key") or (
                        source.text(pair) if pair.type == "shorthand_property_identifier" else ""
                    )
                    value = pair.child_by_field_name("value") or pair
                    if pair.type == "method_definition":
                        key, value = source.field(pair, "name"), pair
                    if re.fullmatch(r"[A-Za-z_$][\w$]*", key):
                        yield from self._bound(path, pair, key, value, depth)
            else:
                required = re.match(r"require\((['\"][^'\"]+['\"])\)$", source.text(right))
                target = self._target(path, required[1]) if required else None
                if target is not None:
                    yield from self.exports(target, depth + 1)
                else:
                    yield from self._bound(path, node, _module_name(path), right, depth)

    def _bound(self, path: str, outer: Any, name: str, value: Any, depth: int) -> Iterator[_Export]:
        if name.startswith("_") or value is None:
            return
        source = self._source(path)
        text = source.text(value)
        if value.type in ("identifier", "shorthand_property_identifier"):
            known = self._required(path, text, depth) or self._local(path, text)
            exposed = text if name == _module_name(path) else name
            yield from self._renamed(known, exposed) if known else (_Export(name, source, value, outer, "javascript"),)
        else:
            exposed = source.field(value, "name") if value.type in ("function_expression", "class") else ""
            exposed = exposed if name == _module_name(path) and exposed else name
            yield _Export(exposed, source, value, outer, self._language(path))

    def _required(self, path: str, name: str, depth: int) -> list[_Export]:
        source = self._source(path)
        pattern = rf"\b{re.escape(name)}\s*=\s*require\((['\"][^'\"]+['\"])\)\s*(?:;|,|\n|$)"
        found = re.search(pattern, source.data.decode("utf-8", "replace"))
        target = self._target(path, found[1]) if found else None
        exports = self.exports(target, depth + 1) if target is not None and depth < _MAX_DEPTH else []
        return [each for each in exports if each.name in (name, _module_name(target or ""))] or exports[:1]


def _module_name(path: str) -> str:
    stem = posixpath.basename(path).split(".")[0]
    if stem == "index":
        stem = posixpath.basename(posixpath.dirname(path)) or "module"
    return re.sub(r"\W+(\w)", lambda found: found[1].upper(), stem)


def _named(source: Source, node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names that a declaration declares, with the node of each."""
    if node.type in ("lexical_declaration", "variable_declaration"):
        for child in node.named_children:
            name = source.field(child, "name") if child.type == "variable_declarator" else ""
            if re.fullmatch(r"[A-Za-z_$][\w$]*", name):
                yield name, child
    elif node.type in _KINDS:
        name = source.field(node, "name").strip("'\"")
        if name:
            yield name, node


# ---- symbols ----


def _describe(export: _Export, module: str) -> Iterator[Symbol]:
    source, node = export.source, export.node
    comment = source.comment_before(export.outer) or source.comment_before(node)
    if doc_comments.is_hidden(comment) or (export.name.startswith("_") and export.name != "_"):
        return
    doc = doc_comments.parse(comment, export.language)
    name = export.name if export.name != "default" else source.field(node, "name") or "default"
    kind, target = _KINDS.get(node.type, "constant"), node
    if node.type == "variable_declarator":
        value = node.child_by_field_name("value")
        if value is not None and value.type in ("arrow_function", "function_expression", "class"):
            kind, target = ("class" if value.type == "class" else "function"), value
    elif node.type in ("arrow_function", "function_expression", "method_definition"):
        kind = "function"
    elif node.type == "class":
        kind = "class"
    parameters = _parameters(source, target) if kind == "function" else ()
    returns = source.field(target, "return_type").lstrip(": ") if kind == "function" else ""
    signature = _signature(source, export, name, kind, target)
    line = source.line(node)
    yield Symbol(name, kind, module, source.path, line, wrap(signature), "", parameters, one_line(returns), doc)
    if kind in ("class", "interface", "namespace"):
        yield from _members(source, target, name, module, export.language)
    elif kind == "enum":
        body = target.child_by_field_name("body")
        for child in body.named_children if body is not None else ():
            label = source.field(child, "name") or source.text(child)
            if child.type in ("enum_assignment", "property_identifier", "string"):
                member_doc = doc_comments.parse(source.comment_before(child), export.language)
                text = one_line(source.text(child))[:200]
                yield Symbol(
                    label.strip("'\""), "variant", module, source.path, source.line(child), text, name, doc=member_doc
                )


def _signature(source: Source, export: _Export, name: str, kind: str, target: Any) -> str:
    node = export.node
    if kind == "function":
        generics = source.field(target, "type_parameters")
        inside = source.field(target, "parameters") or f"({source.field(target, 'parameter')})"
        returns = source.field(target, "return_type")
        is_async = "async " if any(child.type == "async" for child in target.children) else ""
        return one_line(f"{is_async}function {name}{generics}{inside}{returns}")
    if kind in ("class", "interface"):
        body = target.child_by_field_name("body")
        head = one_line(source.between(target.start_byte, body.start_byte if body is not None else target.end_byte))
        return (
            head if re.search(rf"\b{re.escape(name)}\b", head) else re.sub(r"^(class|interface)\b", rf"\1 {name}", head)
        )
    if kind == "namespace":
        return f"namespace {name}"
    if kind == "enum":
        return f"enum {name}"
    if kind == "type":
        text = one_line(source.text(node))
        return text if len(text) <= 400 else f"type {name}{one_line(source.field(node, 'type_parameters'))}"
    annotation = one_line(source.field(node, "type"))
    value = one_line(source.field(node, "value")) if node.type == "variable_declarator" else ""
    shown = f" = {value}" if value and len(value) <= 60 and not annotation else ""
    return f"const {name}{annotation[:300]}{shown}"


def _members(source: Source, node: Any, owner: str, module: str, language: str) -> Iterator[Symbol]:
    body = node.child_by_field_name("body")
    if body is None:
        return
    for child in body.named_children:
        inner = child.child_by_field_name("declaration") if child.type == "export_statement" else child
        if inner is not None and inner.type in _KINDS:
            for name, declared in _named(source, inner):
                yield from (
                    _in_namespace(symbol, owner)
                    for symbol in _describe(_Export(name, source, declared, child, language), module)
                )
            continue
        kind = _MEMBERS.get(child.type)
        if kind is None:
            continue
        name = source.field(child, "name").strip("'\"")
        prefix = source.between(child.start_byte, child.child_by_field_name("name").start_byte) if name else ""
        comment = source.comment_before(child)
        hidden = name.startswith(("#", "_", "[")) or re.search(r"\b(?:private|protected)\b", prefix) is not None
        if hidden or doc_comments.is_hidden(comment):
            continue
        if child.type == "method_definition" and name == "constructor":
            kind = "constructor"
        if not name:
            name = "constructor" if kind == "constructor" else "call"
        if re.search(r"\b[gs]et\s", prefix):
            kind = "property"
        block = child.child_by_field_name("body")
        value = child.child_by_field_name("value")
        end = (block or value or child).start_byte if (block or value) is not None else child.end_byte
        text = re.sub(r"^(?:@\w+(?:\([^)]*\))?\s*)+", "", source.between(child.start_byte, end))
        is_callable = kind in ("method", "constructor")
        parameters = _parameters(source, child) if is_callable else ()
        returns = source.field(child, "return_type" if is_callable else "type").lstrip(": ")
        doc = doc_comments.parse(comment, language)
        yield Symbol(
            name, kind, module, source.path, source.line(child), wrap(one_line(text)[:900]), owner, parameters,
            one_line(returns), doc,
        )  # fmt: skip


def _in_namespace(symbol: Symbol, owner: str) -> Symbol:
    container = f"{owner}.{symbol.container}" if symbol.container else owner
    return Symbol(
        symbol.name, symbol.kind, symbol.module, symbol.path, symbol.line, symbol.signature, container,
        symbol.parameters, symbol.return_type, symbol.doc,
    )  # fmt: skip


def _parameters(source: Source, node: Any) -> tuple[Parameter, ...]:
    text = source.field(node, "parameters").strip()
    if not text:
        single = source.field(node, "parameter")
        return (Parameter(single),) if single else ()
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    found = [name_first(part) for part in split_list(text[1:-1])]
    return tuple(
        Parameter("options" if each.name.startswith(("{", "[")) else each.name, one_line(each.type), each.default)
        for each in found
        if each.name != "this"
    )
