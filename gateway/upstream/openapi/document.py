"""An OpenAPI document: decoded from JSON or YAML within bounds, with its references resolved inside the document only.

`Document` is used by `operations` and `schemas`. References are resolved by the `referencing` library, which fetches
nothing by itself.
"""

import re
from functools import cached_property
from typing import Any, Final, cast

import msgspec
import yaml
import yaml.cyaml
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from gateway.contract import Json

MAX_DOCUMENT_BYTES: Final = 32 * 1024 * 1024
MAX_YAML_BYTES: Final = 8 * 1024 * 1024
"""YAML takes a hundred times as long to decode as JSON."""
MAX_REF_CHAIN: Final = 16
_MAX_KEY: Final = 1024
_VERSION: Final = re.compile(r"3\.[01](\.|$)")
_JSON_START: Final = re.compile(rb"\s*\{")
_ROOT: Final = "urn:gatehouse:document"


class DocumentError(ValueError):
    """The document, or the part of it that is read, cannot be served. The message gives the reason to the operator."""


class Document:
    """A decoded document of OpenAPI 3.0 or 3.1."""

    def __init__(self, root: Json) -> None:
        version = root.get("openapi")
        if "swagger" in root:
            raise DocumentError("it is Swagger 2.0; convert it to OpenAPI 3, for instance with swagger2openapi")
        if not isinstance(version, str) or not _VERSION.match(version):
            raise DocumentError(f"it is not OpenAPI 3.0 or 3.1 (openapi: {str(version)[:20]!r})")
        self.root = root
        self.is_3_0 = version.startswith("3.0")
        self._resolved: dict[str, Any] = {}

    @cached_property
    def _resolver(self) -> Any:
        empty: Registry[Any] = Registry()
        resource: Resource[Any] = Resource(contents=self.root, specification=DRAFT202012)
        return empty.with_resource(_ROOT, resource).resolver(_ROOT)

    def lookup(self, ref: str) -> Any:
        """The target of a reference. Raises `DocumentError` unless it is in this document."""
        if ref not in self._resolved:
            if not ref.startswith("#") or len(ref) > _MAX_KEY:
                raise DocumentError(f"$ref {ref[:80]!r} leads out of the document, and nothing is fetched")
            try:
                self._resolved[ref] = self._resolver.lookup(ref).contents
            except (Unresolvable, ValueError, TypeError, LookupError, AttributeError) as exc:
                # The library does not expect every malformed pointer: each exception means that there is no target.
                raise DocumentError(f"$ref {ref[:80]!r} has no target in the document") from exc
        return self._resolved[ref]

    def resolve(self, value: Any) -> Json:
        """Follow the references of an object. Raises `DocumentError` for a cycle and for any other type."""
        for _ in range(MAX_REF_CHAIN):
            if not isinstance(value, dict):
                raise DocumentError("an object is expected, but the document has another type there")
            ref = cast("Json", value).get("$ref")
            if not isinstance(ref, str):
                return cast("Json", value)
            value = self.lookup(ref)
        raise DocumentError(f"a $ref refers to itself, or to a chain of more than {MAX_REF_CHAIN} others")

    def members(self, holder: Json, key: str) -> Json:
        """An object-valued member; {} if it is absent or has another type."""
        value = holder.get(key)
        return cast("Json", value) if isinstance(value, dict) else {}


def parse_document(raw: bytes) -> Document:
    """Decode JSON or YAML. Raises `DocumentError`."""
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise DocumentError(f"it is over {MAX_DOCUMENT_BYTES} bytes")
    root = _decode_json(raw) if _JSON_START.match(raw) else _decode_yaml(raw)
    if not isinstance(root, dict):
        raise DocumentError("it is not an object")
    return Document(cast("Json", root))


def _decode_json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise DocumentError(f"it is not valid JSON: {str(exc)[:120]}") from exc
    except RecursionError as exc:
        raise DocumentError("it is nested too deeply") from exc


def _create_loader() -> Any:
    """The safe loader for the types of JSON: a date stays text.

    It combines the parser in C, where it is available, with the composer in Python: the one in C overflows the stack
    on a deeply nested document and so ends the process, the one in Python raises `RecursionError`.
    """
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    parser: Any = getattr(yaml.cyaml, "CParser", None) if yaml.__with_libyaml__ else None
    if parser is None:
        return type("_Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})

    def initialize(self: Any, stream: bytes) -> None:
        parser.__init__(self, stream)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    members = {"__init__": initialize, "yaml_implicit_resolvers": resolvers}
    return type("_Loader", (Composer, parser, SafeConstructor, Resolver), members)


_Loader: Final = _create_loader()


def _decode_yaml(raw: bytes) -> Any:
    if len(raw) > MAX_YAML_BYTES:
        raise DocumentError(f"as YAML it is over {MAX_YAML_BYTES} bytes; convert it to JSON")
    try:
        return _text_keys(yaml.load(raw, Loader=_Loader), {})  # noqa: S506  # derived from the safe loader
    except (yaml.YAMLError, ValueError, TypeError) as exc:
        reason = str(exc).partition("\n")[0][:120]
        raise DocumentError(f"it is neither JSON nor valid YAML: {reason}") from exc
    except RecursionError as exc:
        raise DocumentError("it is nested too deeply, or an anchor contains itself") from exc


def _text_keys(value: Any, done: dict[int, Any]) -> Any:
    """The value with text as keys. A value with several aliases is converted once and stays shared."""
    if not isinstance(value, dict | list):
        return value
    identity = id(cast("Any", value))
    if identity not in done:
        done[identity] = None  # an anchor that contains itself is cut there
        if isinstance(value, list):
            done[identity] = [_text_keys(item, done) for item in cast("list[Any]", value)]
        else:
            items = cast("dict[Any, Any]", value).items()
            done[identity] = {_text_key(key): _text_keys(item, done) for key, item in items}
    return done[identity]


def _text_key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
