"""The public surface of a Rust crate: `pub` items that are reachable from the crate root, and re-exports."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Doc, Parameter, Symbol
from backends.launch.surface.source import Source, name_first, one_line, split_list, wrap

_ITEMS: Final = {
    "function_item": "function", "function_signature_item": "function", "struct_item": "struct", "enum_item": "enum",
    "trait_item": "trait", "const_item": "constant", "static_item": "constant", "type_item": "type",
    "union_item": "struct", "macro_definition": "macro",
}  # fmt: skip


@dataclass(slots=True)
class _Module:
    """A module of the crate: its items, submodules and `pub use` paths."""

    path: tuple[str, ...]
    source: Source
    is_public: bool
    items: dict[str, Any] = field(default_factory=dict[str, Any])
    children: "dict[str, _Module]" = field(default_factory=dict[str, Any])
    uses: list[tuple[tuple[str, ...], str]] = field(default_factory=list[tuple[tuple[str, ...], str]])
    doc: str = ""


def extract(files: Mapping[str, bytes]) -> list[Symbol]:
    found: list[Symbol] = []
    for root in sorted(path for path in files if path.endswith("src/lib.rs")):
        folder = root.removesuffix("src/lib.rs")
        if any(part in ("examples", "tests", "benches", "fuzz") for part in PurePosixPath(folder).parts):
            continue
        name = _crate_name(files.get(f"{folder}Cargo.toml", b"").decode("utf-8", "replace")) or "crate"
        found.extend(_Crate(files, name, root).symbols())
    return found


def _crate_name(cargo: str) -> str:
    found = re.search(r"^\[(?:lib)\][^\[]*?^name\s*=\s*\"([^\"]+)\"", cargo, re.MULTILINE | re.DOTALL) or re.search(
        r"^\[package\][^\[]*?^name\s*=\s*\"([^\"]+)\"", cargo, re.MULTILINE | re.DOTALL
    )
    return found[1].replace("-", "_") if found else ""


class _Crate:
    def __init__(self, files: Mapping[str, bytes], name: str, root: str) -> None:
        self._files = files
        self._name = name
        self._impls: dict[str, list[tuple[Source, Any]]] = defaultdict(list)
        self._macros: list[tuple[Source, Any]] = []
        self._nodes: dict[tuple[str, int], tuple[Source, Any]] = {}
        """Declarations of public items by path and line."""
        source = Source.parse(root, files[root], "rust")
        self._root = _Module((), source, is_public=True)
        self._load(self._root, source.root, str(PurePosixPath(root).parent))

    # ---- reading ----

    def _load(self, module: _Module, body: Any, folder: str) -> None:
        source = module.source
        inner = [source.text(node) for node in body.named_children if node.type in ("line_comment", "block_comment")]
        module.doc = "\n".join(each.rstrip("\n") for each in inner if each.startswith(("//!", "/*!")))
        for node in body.named_children:
            attributes = _attributes(source, node)
            if "cfg(test)" in attributes or "doc(hidden)" in attributes:
                continue
            if node.type == "mod_item":
                self._load_child(module, node, folder, attributes)
            elif node.type == "impl_item" and node.child_by_field_name("trait") is None:
                self._impls[_type_name(source.field(node, "type"))].append((source, node))
            elif node.type == "use_declaration" and _is_public(source, node):
                module.uses.extend(_use_paths(source.field(node, "argument")))
            elif node.type == "macro_definition":
                if "macro_export" in attributes:
                    self._macros.append((source, node))
            elif node.type in _ITEMS and _is_public(source, node):
                module.items.setdefault(source.field(node, "name"), node)

    def _load_child(self, module: _Module, node: Any, folder: str, attributes: str) -> None:
        name = module.source.field(node, "name")
        public = _is_public(module.source, node)
        body = node.child_by_field_name("body")
        if body is not None:
            child = _Module((*module.path, name), module.source, public)
            child.doc = module.source.comment_before(node)
            self._load(child, body, f"{folder}/{name}")
        else:
            named = re.search(r'path\s*=\s*"([^"]+)"', attributes)
            choices = [f"{folder}/{named[1]}"] if named else [f"{folder}/{name}.rs", f"{folder}/{name}/mod.rs"]
            path = next((each for each in choices if each in self._files), None)
            if path is None:
                return
            source = Source.parse(path, self._files[path], "rust")
            child = _Module((*module.path, name), source, public)
            inside = (
                f"{folder}/{name}" if not path.endswith("/mod.rs") or not named else str(PurePosixPath(path).parent)
            )
            self._load(child, source.root, inside)
        module.children[name] = child

    # ---- the public names ----

    def symbols(self) -> list[Symbol]:
        found: dict[int, Symbol] = {}
        described: list[Symbol] = []
        for module, name, owner, node in self._public_items():
            path = "::".join((self._name, *module))
            key = hash((owner.path, node.start_byte))
            known = found.get(key)
            if known is None or path.count("::") < known.module.count("::"):
                found[key] = _item(owner, node, name, path)
                self._nodes[(owner.path, owner.line(node))] = (owner, node)
        for source, node in self._macros:
            symbol = _item(source, node, source.field(node, "name"), self._name)
            found[hash((source.path, node.start_byte))] = symbol
        for module in self._public_modules(self._root):
            doc = doc_comments.parse(module.doc.replace("//!", "///").replace("/*!", "/**"), "rust")
            if doc.blocks:
                path = "::".join((self._name, *module.path))
                described.append(Symbol(path, "module", path, module.source.path, 1, "", doc=doc))
        for symbol in found.values():
            described.append(symbol)
            described.extend(self._members(symbol))
        return described

    def _public_modules(self, module: _Module) -> Iterator[_Module]:
        yield module
        for child in module.children.values():
            if child.is_public:
                yield from self._public_modules(child)

    def _public_items(self) -> Iterator[tuple[tuple[str, ...], str, Source, Any]]:
        for module in self._public_modules(self._root):
            for name, node in module.items.items():
                yield module.path, name, module.source, node
            yield from self._reexports(module, module.path, set())

    def _reexports(
        self, module: _Module, exported_at: tuple[str, ...], seen: set[tuple[str, ...]]
    ) -> Iterator[tuple[tuple[str, ...], str, Source, Any]]:
        if module.path in seen:
            return
        seen.add(module.path)
        for path, alias in module.uses:
            target = self._resolve(module, path)
            if target is None:
                continue
            owner, name = target
            if alias == "*":
                inner = owner.children.get(name, owner)
                if inner is not owner or not name:
                    yield from ((exported_at, key, inner.source, node) for key, node in inner.items.items())
                    yield from self._reexports(inner, exported_at, seen)
            elif name in owner.items:
                yield exported_at, alias or name, owner.source, owner.items[name]
            elif name in owner.children:
                inner = owner.children[name]
                inside = (*exported_at, alias or name)
                if not inner.is_public:
                    yield from ((inside, key, inner.source, node) for key, node in inner.items.items())
                    yield from self._reexports(inner, inside, seen)
            else:
                yield from self._through(owner, name, alias or name, exported_at, 0)

    def _through(
        self, owner: _Module, name: str, alias: str, exported_at: tuple[str, ...], depth: int
    ) -> Iterator[tuple[tuple[str, ...], str, Source, Any]]:
        """Follow a name that the owner itself re-exports."""
        for path, inner_alias in owner.uses if depth < 8 else ():
            target = self._resolve(owner, path)
            if target is None:
                continue
            inner, inner_name = target
            if inner_alias == "*":
                inner = inner.children.get(inner_name, inner) if inner_name else inner
                inner_name = name
            elif (inner_alias or inner_name) != name:
                continue
            if inner_name in inner.items:
                yield exported_at, alias, inner.source, inner.items[inner_name]
                return
            if inner is not owner:
                yield from self._through(inner, inner_name, alias, exported_at, depth + 1)

    def _resolve(self, module: _Module, path: tuple[str, ...]) -> tuple[_Module, str] | None:
        """Return the module that contains the last name of the path. The name is empty for the module itself."""
        parts = list(path)
        current: _Module | None = module
        if parts and parts[0] in ("crate", self._name):
            current, parts = self._root, parts[1:]
        while parts and parts[0] in ("self", "super"):
            current = self._find(module.path[:-1]) if parts[0] == "super" else current
            parts = parts[1:]
        if current is not None and parts and parts[0] not in (*current.children, *current.items):
            current = self._root if parts[0] in self._root.children else current
        for part in parts[:-1]:
            current = current.children.get(part) if current is not None else None
        return (current, parts[-1] if parts else "") if current is not None else None

    def _find(self, path: tuple[str, ...]) -> _Module | None:
        current: _Module | None = self._root
        for part in path:
            current = current.children.get(part) if current is not None else None
        return current

    # ---- members ----

    def _members(self, symbol: Symbol) -> Iterator[Symbol]:
        seen: set[str] = set()
        if symbol.kind not in ("struct", "enum", "trait", "type"):
            return
        for member in (*self._own_members(symbol), *self._impl_members(symbol)):
            if member.name not in seen:
                seen.add(member.name)
                yield member

    def _own_members(self, symbol: Symbol) -> Iterator[Symbol]:
        source, node = self._nodes[(symbol.path, symbol.line)]
        body = node.child_by_field_name("body")
        for child in body.named_children if body is not None else ():
            hidden = "doc(hidden)" in _attributes(source, child)
            if child.type == "field_declaration" and _is_public(source, child) and not hidden:
                name, kind = source.field(child, "name"), one_line(source.field(child, "type"))
                yield _member(source, child, symbol, name, "field", f"pub {name}: {kind}", (), kind)
            elif child.type == "enum_variant" and not hidden:
                name = source.field(child, "name")
                yield _member(source, child, symbol, name, "variant", one_line(source.text(child))[:300], (), "")
            elif child.type in ("function_item", "function_signature_item") and not hidden:
                yield _function_member(source, child, symbol)

    def _impl_members(self, symbol: Symbol) -> Iterator[Symbol]:
        owner, declaration = self._nodes[(symbol.path, symbol.line)]
        for source, node in self._impls.get(owner.field(declaration, "name"), ()):
            body = node.child_by_field_name("body")
            for child in body.named_children if body is not None else ():
                hidden = "doc(hidden)" in _attributes(source, child) or "cfg(test)" in _attributes(source, child)
                if hidden or not _is_public(source, child):
                    continue
                if child.type == "function_item":
                    yield _function_member(source, child, symbol)
                elif child.type == "const_item":
                    text = one_line(source.text(child))[:200]
                    yield _member(source, child, symbol, source.field(child, "name"), "constant", text, (), "")


def _item(owner: Source, node: Any, name: str, module: str) -> Symbol:
    kind = _ITEMS[node.type]
    doc = _doc(owner, node)
    if kind == "macro":
        return Symbol(name, kind, module, owner.path, owner.line(node), f"macro_rules! {name}", doc=doc)
    body = node.child_by_field_name("body")
    is_value = kind in ("constant", "type")
    end = (
        node.end_byte if body is None or is_value or body.type == "ordered_field_declaration_list" else body.start_byte
    )
    signature = one_line(owner.between(node.start_byte, end))
    if kind == "constant":
        signature = signature.split(" = ")[0] if len(signature) > 160 else signature
    parameters = _parameters(owner, node) if kind == "function" else ()
    returns = one_line(owner.field(node, "return_type")) if kind == "function" else ""
    return Symbol(name, kind, module, owner.path, owner.line(node), wrap(signature[:600]), "", parameters, returns, doc)


def _function_member(source: Source, node: Any, symbol: Symbol) -> Symbol:
    body = node.child_by_field_name("body")
    end = body.start_byte if body is not None else node.end_byte
    signature = wrap(one_line(source.between(node.start_byte, end)))
    returns = one_line(source.field(node, "return_type"))
    return _member(
        source, node, symbol, source.field(node, "name"), "method", signature, _parameters(source, node), returns
    )


def _member(
    source: Source,
    node: Any,
    symbol: Symbol,
    name: str,
    kind: str,
    signature: str,
    parameters: tuple[Parameter, ...],
    returns: str,
) -> Symbol:
    return Symbol(
        name,
        kind,
        symbol.module,
        source.path,
        source.line(node),
        signature,
        symbol.name,
        parameters,
        returns,
        _doc(source, node),
    )


def _parameters(source: Source, node: Any) -> tuple[Parameter, ...]:
    text = source.field(node, "parameters").strip()[1:-1]
    found = [name_first(re.sub(r"//[^\n]*", "", part)) for part in split_list(text)]
    return tuple(
        each
        for each in found
        if each.name not in ("self", "&self") and not re.match(r"&?('\w+ )?(mut )?self$", each.name)
    )


def _doc(source: Source, node: Any) -> Doc:
    doc = doc_comments.parse(source.comment_before(node), "rust")
    attributes = _attributes(source, node)
    found = re.search(r"deprecated(?:\(([^)]*)\))?", attributes)
    if found is None:
        return doc
    note = re.search(r'note\s*=\s*"([^"]*)"', attributes)
    return Doc(doc.blocks, doc.parameters, doc.returns, doc.return_type, doc.raises, note[1] if note else "")


def _attributes(source: Source, node: Any) -> str:
    found: list[str] = []
    sibling = node.prev_sibling
    while sibling is not None and sibling.type in ("attribute_item", "line_comment", "block_comment"):
        if sibling.type == "attribute_item":
            found.append(re.sub(r"\s+", " ", source.text(sibling)).replace("doc (", "doc("))
        sibling = sibling.prev_sibling
    return " ".join(found)


def _is_public(source: Source, node: Any) -> bool:
    modifier = next((child for child in node.children if child.type == "visibility_modifier"), None)
    return modifier is not None and source.text(modifier) == "pub"


def _type_name(text: str) -> str:
    return re.sub(r"<.*", "", text, flags=re.DOTALL).split("::")[-1].strip("& ")


def _use_paths(text: str, prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """Return (path, alias) of each imported name. The alias is `*` for a wildcard and empty for the own name."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).strip()
    if (at := text.find("{")) >= 0:
        base = (*prefix, *(part for part in text[:at].strip().split("::") if part))
        inside = text[at + 1 : text.rfind("}")]
        return [each for part in split_list(inside) for each in _use_paths(part, base)]
    path, _, alias = (part.strip() for part in text.partition(" as "))
    parts = (*prefix, *(part for part in path.split("::") if part))
    if parts and parts[-1] == "*":
        return [(parts[:-1], "*")]
    if parts and parts[-1] == "self":
        parts = parts[:-1]
    return [(parts, alias)]
