"""The public surface of Java, Kotlin, C#, PHP and Swift sources, which share one shape: types with members."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from backends.launch.surface import doc_comments
from backends.launch.surface.model import Doc, Parameter, Symbol
from backends.launch.surface.source import Source, matching, name_first, one_line, split_list, type_first, wrap

_TEST_PARTS: Final = frozenset({
    "test", "tests", "androidtest", "commontest", "jvmtest", "integrationtest", "benchmarks", "examples", "samples",
    "example", "sample", "vendor", "testfixtures", "jmh",
})  # fmt: skip
_CODE: Final = frozenset({
    "function_body", "block", "accessor_list", "computed_property", "arrow_expression_clause", "compound_statement",
    "getter", "protocol_property_requirements", "property_delegate",
})  # fmt: skip
"""Nodes where the declaration of a member ends and its code begins."""
_MODIFIERS: Final = frozenset({
    "public", "protected", "static", "final", "abstract", "synchronized", "default", "native", "virtual", "override",
    "async", "sealed", "extern", "unsafe", "new", "partial", "strictfp", "readonly",
})  # fmt: skip
_BODIES: Final = frozenset({
    "class_body", "interface_body", "enum_body", "declaration_list", "enum_body_declarations", "protocol_body",
    "enum_class_body", "annotation_type_body", "enum_member_declaration_list", "enum_declaration_list",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a language declares, and which of it is public."""

    language: str
    extensions: tuple[str, ...]
    types: Mapping[str, str]
    members: Mapping[str, str]
    wrappers: frozenset[str]
    is_public: Callable[[set[str], str], bool]
    """Takes the modifiers of a declaration and the kind of its container."""
    parameter: Callable[[str], Parameter]
    module: re.Pattern[str]
    deprecated: re.Pattern[str]


def _java_public(modifiers: set[str], container: str) -> bool:
    implicit = container in ("interface", "annotation") and "private" not in modifiers
    return bool(modifiers & {"public", "protected"}) or implicit


def _csharp_public(modifiers: set[str], container: str) -> bool:
    return (
        "public" in modifiers
        or (container == "interface" and not modifiers & {"private", "internal"})
        or ("protected" in modifiers and not modifiers & {"private", "internal"})
    )


def _kotlin_public(modifiers: set[str], container: str) -> bool:
    return not modifiers & {"private", "internal", "protected"}


def _php_public(modifiers: set[str], container: str) -> bool:
    return not modifiers & {"private", "protected"}


def _swift_public(modifiers: set[str], container: str) -> bool:
    implicit = container in ("protocol", "public extension") and not modifiers & {"private", "internal", "fileprivate"}
    return bool(modifiers & {"public", "open"}) or implicit


RULES: Final = {
    "java": _Rules(
        "java", (".java",),
        {"class_declaration": "class", "interface_declaration": "interface", "enum_declaration": "enum",
         "record_declaration": "record", "annotation_type_declaration": "annotation"},
        {"method_declaration": "method", "constructor_declaration": "constructor", "field_declaration": "field",
         "constant_declaration": "field", "enum_constant": "variant", "annotation_type_element_declaration": "method"},
        frozenset({"program", "enum_body_declarations"}), _java_public, type_first,
        re.compile(r"^\s*package\s+([\w.]+)\s*;", re.MULTILINE), re.compile(r"@Deprecated\b"),
    ),
    "kotlin": _Rules(
        "kotlin", (".kt",),
        {"class_declaration": "class", "object_declaration": "object", "companion_object": "object"},
        {"function_declaration": "method", "property_declaration": "property", "enum_entry": "variant",
         "type_alias": "type", "secondary_constructor": "constructor"},
        frozenset({"source_file", "ERROR"}), _kotlin_public, name_first,
        re.compile(r"^\s*package\s+([\w.]+)", re.MULTILINE),
        re.compile(r"@Deprecated\b(?:\(\s*(?:message\s*=\s*)?\"([^\"]*)\")?"),
    ),
    "csharp": _Rules(
        "csharp", (".cs",),
        {"class_declaration": "class", "interface_declaration": "interface", "struct_declaration": "struct",
         "enum_declaration": "enum", "record_declaration": "record"},
        {"method_declaration": "method", "constructor_declaration": "constructor", "property_declaration": "property",
         "field_declaration": "field", "event_field_declaration": "event", "enum_member_declaration": "variant",
         "delegate_declaration": "type", "indexer_declaration": "property", "operator_declaration": "operator"},
        frozenset({"compilation_unit", "namespace_declaration", "file_scoped_namespace_declaration", "declaration_list",
                   "preproc_if", "preproc_else"}),
        _csharp_public, type_first,
        re.compile(r"^\s*namespace\s+([\w.]+)", re.MULTILINE),
        re.compile(r"\[(?:System\.)?Obsolete(?:\(\s*\"([^\"]*)\")?"),
    ),
    "php": _Rules(
        "php", (".php",),
        {"class_declaration": "class", "interface_declaration": "interface", "trait_declaration": "trait",
         "enum_declaration": "enum"},
        {"method_declaration": "method", "function_definition": "function", "const_declaration": "constant",
         "property_declaration": "property", "enum_case": "variant"},
        frozenset({"program", "namespace_definition", "compound_statement", "if_statement"}), _php_public, type_first,
        re.compile(r"^\s*namespace\s+([\w\\]+)", re.MULTILINE), re.compile(r"#\[\\?Deprecated\b"),
    ),
    "swift": _Rules(
        "swift", (".swift",),
        {"class_declaration": "class", "protocol_declaration": "protocol"},
        {"function_declaration": "method", "init_declaration": "constructor", "property_declaration": "property",
         "protocol_function_declaration": "method", "protocol_property_declaration": "property",
         "enum_entry": "variant",
         "typealias_declaration": "type", "subscript_declaration": "method"},
        frozenset({"source_file"}), _swift_public, name_first, re.compile(r"(?!)"),
        re.compile(r"@available\([^)]*deprecated[^)]*?(?:message:\s*\"([^\"]*)\")?[^)]*\)"),
    ),
}  # fmt: skip


def extract(language: str, files: Mapping[str, bytes], product: str) -> list[Symbol]:
    """Return the public symbols. `product` names the module of languages that have no packages."""
    rules = RULES[language]
    found: dict[tuple[str, str, str], Symbol] = {}
    for path, data in sorted(files.items()):
        parts = PurePosixPath(path).parts
        is_test = not _TEST_PARTS.isdisjoint(part.lower() for part in parts[:-1]) or re.search(
            r"(?:Tests?|Spec)\.\w+$", path
        )
        if not path.endswith(rules.extensions) or is_test:
            continue
        source = Source.parse(path, data, language)
        module = _module(rules, source, product)
        if language == "java" and ".internal" in f".{module}":
            continue
        for symbol in _Declarations(rules, source, module).symbols():
            found.setdefault((module, symbol.qualified_name, symbol.signature), symbol)
    return list(found.values())


def _module(rules: _Rules, source: Source, product: str) -> str:
    declared = rules.module.search(source.data[:200_000].decode("utf-8", "replace"))
    if declared:
        return declared[1]
    parts = PurePosixPath(source.path).parts
    if rules.language == "swift" and "Sources" in parts[:-2]:
        return parts[parts.index("Sources") + 1]
    return product


@dataclass(frozen=True, slots=True)
class _Declarations:
    rules: _Rules
    source: Source
    module: str

    def symbols(self) -> Iterator[Symbol]:
        yield from self._read(self.source.root, "", "")

    def _read(self, node: Any, container: str, container_kind: str) -> Iterator[Symbol]:
        for child in node.named_children:
            if child.type in self.rules.types:
                yield from self._type(child, container, container_kind)
            elif child.type in self.rules.members:
                yield from self._member(child, container, container_kind)
            elif child.type in self.rules.wrappers or child.type in _BODIES:
                yield from self._read(child, container, container_kind)

    def _type(self, node: Any, container: str, container_kind: str) -> Iterator[Symbol]:
        source = self.source
        name = self._name(node) or ("Companion" if node.type == "companion_object" else "")
        body = next((child for child in node.named_children if child.type in _BODIES), None)
        head = source.between(node.start_byte, body.start_byte if body is not None else node.end_byte)
        modifiers = self._modifiers(node, head)
        comment = source.comment_before(node)
        is_extension = re.search(r"\bextension\b", head.split("{")[0]) is not None and self.rules.language == "swift"
        visible = self.rules.is_public(modifiers, container_kind) and not doc_comments.is_hidden(comment)
        kind = self._kind(node, head)
        if is_extension:
            inner = "public extension" if visible else "extension"
            if body is not None:
                yield from self._read(body, name, inner)
            return
        if not visible or not name:
            return
        if node.type == "companion_object":
            if body is not None:
                yield from self._read(body, container, container_kind)
            return
        qualified = f"{container}.{name}" if container else name
        signature = self._signature(head)
        parameters = self._parameters(signature) if kind == "record" or self.rules.language == "kotlin" else ()
        doc = self._doc(comment, head)
        yield Symbol(
            name, kind, self.module, source.path, source.line(node), wrap(signature), container, parameters, "", doc
        )
        if body is not None:
            yield from self._read(body, qualified, kind)

    def _member(self, node: Any, container: str, container_kind: str) -> Iterator[Symbol]:
        source, kind = self.source, self.rules.members[node.type]
        block = node.child_by_field_name("body") or next(
            (child for child in node.named_children
             if child.type in _CODE),
            None,
        )  # fmt: skip
        head = source.between(node.start_byte, block.start_byte if block is not None else node.end_byte)
        comment = source.comment_before(node)
        modifiers = self._modifiers(node, head)
        visible = kind == "variant" or self.rules.is_public(modifiers, container_kind)
        if not visible or doc_comments.is_hidden(comment):
            return
        doc = self._doc(comment, head)
        signature = self._signature(head)
        if kind in ("method", "function") and not container:
            kind = "function"
        is_callable = kind in ("method", "function", "constructor", "type", "operator")
        parameters = self._parameters(signature) if is_callable else ()
        returns = self._return_type(signature, kind)
        for name in self._member_names(node, kind, container):
            if name.startswith("_") and self.rules.language != "csharp":
                continue
            shown = signature
            if kind in ("field", "property", "constant"):
                shown = re.sub(r"\s*=\s*.{80,}$", "", signature)[:300]
            yield Symbol(
                name,
                kind,
                self.module,
                source.path,
                source.line(node),
                wrap(shown),
                container,
                parameters,
                returns,
                doc,
            )

    def _member_names(self, node: Any, kind: str, container: str) -> list[str]:
        source = self.source
        if kind == "constructor":
            return [container.rpartition(".")[2] if self.rules.language != "swift" else "init"]
        if node.type in ("field_declaration", "constant_declaration", "event_field_declaration"):
            found = re.findall(r"variable_declarator", str(node))
            names = [source.field(each, "name") for each in _descendants(node, "variable_declarator")]
            return [name for name in names if name] if found else []
        if node.type == "const_declaration":
            return [source.text(each).split("=")[0].strip() for each in _descendants(node, "const_element")]
        if node.type == "property_declaration" and self.rules.language == "php":
            return [source.text(each).split("=")[0].strip() for each in _descendants(node, "property_element")]
        if node.type == "indexer_declaration":
            return ["this[]"]
        if node.type == "operator_declaration":
            found_operator = re.search(r"operator\s*(\S+?)\s*\(", source.text(node))
            return [f"operator {found_operator[1]}"] if found_operator else []
        if node.type == "subscript_declaration":
            return ["subscript"]
        name = self._name(node)
        return [name] if name else []

    def _name(self, node: Any) -> str:
        source = self.source
        field = node.child_by_field_name("name")
        if field is not None:
            return source.text(field).strip("` \n")
        if node.type == "property_declaration":
            declared = next(
                (child for child in node.named_children if child.type in ("variable_declaration", "pattern")), None
            )
            text = source.text(declared)
            return re.split(r"[:\s<]", text.strip())[0].strip("`") if text else ""
        simple = ("identifier", "simple_identifier", "type_identifier", "name", "property_identifier")
        return next((source.text(child).strip("`") for child in node.named_children if child.type in simple), "")

    def _modifiers(self, node: Any, head: str) -> set[str]:
        name = self._name(node)
        before = self._signature(head).split("(")[0]
        before = before[: before.find(name)] if name and name in before else before
        return set(re.findall(r"\b[a-z]+\b", re.sub(r"@\w+(?:\([^)]*\))?", "", before)))

    def _kind(self, node: Any, head: str) -> str:
        kind = self.rules.types[node.type]
        if node.type == "class_declaration" and self.rules.language in ("kotlin", "swift"):
            found = re.search(
                r"\b(interface|enum|struct|actor|protocol|annotation)\b", head.split("(")[0].split(":")[0]
            )
            kind = {"actor": "class"}.get(found[1], found[1]) if found else kind
        return kind

    def _signature(self, head: str) -> str:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", head, flags=re.DOTALL)
        text = re.sub(r"^(?:\s*(?:#?\[[^\]]*\]|@[\w.]+(?:\((?:[^()]|\([^()]*\))*\))?)\s*)+", "", text)
        return one_line(text)[:900].rstrip(" =:{;")

    def _parameters(self, signature: str) -> tuple[Parameter, ...]:
        at = signature.find("(")
        end = matching(signature, at) if at >= 0 else None
        if end is None:
            return ()
        found = [self.rules.parameter(part) for part in split_list(signature[at + 1 : end])]
        if self.rules.language == "swift":
            found = [Parameter(each.name.split(" ")[-1], each.type, each.default) for each in found]
        return tuple(each for each in found if each.name or each.type)

    def _return_type(self, signature: str, kind: str) -> str:
        if kind not in ("method", "function"):
            return ""
        at = signature.find("(")
        end = matching(signature, at) if at >= 0 else None
        if end is None:
            return ""
        if self.rules.language in ("kotlin", "php"):
            found = re.match(r"\s*:\s*(.+?)(?:\s*=.*)?$", signature[end + 1 :])
            return found[1].strip() if found else ""
        if self.rules.language == "swift":
            found = re.search(r"->\s*(.+?)(?:\s+where\b.*)?$", signature[end + 1 :])
            return found[1].strip() if found else ""
        words = split_list(signature[:at].strip(), " ")
        kept = [word for word in words[:-1] if word not in _MODIFIERS and not word.startswith("@")]
        kept = [word for word in kept if not (word.startswith("<") and word.endswith(">"))]
        return " ".join(kept)

    def _doc(self, comment: str, head: str) -> Doc:
        doc = doc_comments.parse(comment, self.rules.language)
        found = self.rules.deprecated.search(head)
        if found is None or doc.deprecated is not None:
            return doc
        note = found[1] if found.re.groups and found[1] else ""
        return Doc(doc.blocks, doc.parameters, doc.returns, doc.return_type, doc.raises, note)


def _descendants(node: Any, kind: str) -> Iterator[Any]:
    for child in node.named_children:
        if child.type == kind:
            yield child
        else:
            yield from _descendants(child, kind)
