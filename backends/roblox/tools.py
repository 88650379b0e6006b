"""The tools of the Roblox contract as a table: schemas, effect, and the operation sent to the Studio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from backends.gox.action import closed_schema
from gateway.contract import Json

_TEXT: Final[Json] = {"type": "string"}
_NAME: Final[Json] = {"type": "string", "minLength": 1}
_FLAG: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_LIMIT: Final[Json] = {"type": "integer", "minimum": 1}
_STUDIO: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "description": "The studioId from list_studios. Default: your own Studio, or the only one.",
}
_INSTANCE: Final[Json] = {
    "type": "object",
    "properties": {
        "instanceId": _TEXT,
        "name": _TEXT,
        "className": _TEXT,
        "path": _TEXT,
        "parentPath": _TEXT,
        "childCount": _COUNT,
    },
}
_VALUE: Final[Json] = {
    "description": 'A primitive, or an object tagged by _type: {"_type": "Vector3", "x": 0, "y": 5, "z": 0}.',
}
_LOGS: Final[Json] = {
    "type": "array",
    "items": {"type": "object", "properties": {"level": _TEXT, "message": _TEXT}},
    "description": "What was printed meanwhile; absent if nothing was.",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and the Studio operation that it calls."""

    name: str
    operation: str
    title: str
    description: str
    effect: Literal["read", "write"]
    input_schema: Json
    output_schema: Json


def _input_schema(target: str | None, properties: Json, required: Sequence[str] = (), **more: Any) -> Json:
    """Build an input schema with a target, addressed by path or by id, and further properties."""
    targets: Json = {}
    if target is not None:
        either = [f"{target}Path", f"{target}Id"]
        targets = {either[0]: _NAME, either[1]: _NAME}
        more = {"anyOf": [{"required": [each]} for each in either], **more}
    return closed_schema({**targets, **properties, "studioId": _STUDIO}, required, **more)


def _output_schema(**properties: Json) -> Json:
    common: Json = {"dryRun": _FLAG, "diffSummary": _TEXT, "path": _TEXT, "instanceId": _TEXT}
    return {"type": "object", "properties": {**common, **properties}}


_PAGE: Final[Json] = {"offset": _COUNT, "limit": _LIMIT, "count": _COUNT, "hasMore": _FLAG, "nextOffset": _COUNT}
_FIND_RULES: Final[Json] = {
    "allOf": [
        {"anyOf": [{"required": ["rootPath"]}, {"required": ["rootId"]}]},
        {"anyOf": [{"required": ["nameContains"]}, {"required": ["className"]}]},
    ]
}

TOOLS: Final = (
    Tool(
        "bridge_ping",
        "bridge.ping",
        "Ping Studio",
        "Check that the Studio responds.",
        "read",
        _input_schema(None, {}),
        _output_schema(ok=_FLAG, placeId={"type": "number"}, studio=_FLAG),
    ),
    Tool(
        "script_create",
        "script.create",
        "Create a script",
        "Create a script under a parent.",
        "write",
        _input_schema(
            "parent",
            {
                "name": _NAME,
                "scriptType": {"type": "string", "enum": ["Script", "LocalScript", "ModuleScript"]},
                "source": _TEXT,
            },
            ("name", "scriptType", "source"),
        ),
        _output_schema(created=_FLAG, className=_TEXT),
    ),
    Tool(
        "script_update",
        "script.update",
        "Update a script",
        "Replace a script's source.",
        "write",
        _input_schema("script", {"source": _TEXT}, ("source",)),
        _output_schema(updated=_FLAG),
    ),
    Tool(
        "script_delete",
        "script.delete",
        "Delete a script",
        "Delete a script.",
        "write",
        _input_schema("script", {}),
        _output_schema(deleted=_FLAG),
    ),
    Tool(
        "script_get_source",
        "script.get_source",
        "Read a script",
        "Read a script's source.",
        "read",
        _input_schema("script", {}),
        _output_schema(className=_TEXT, source=_TEXT),
    ),
    Tool(
        "script_execute",
        "script.execute",
        "Execute a script",
        "Require a script as a module and, with functionName, call that function of the returned table.",
        "write",
        _input_schema(
            "script",
            {
                "functionName": _NAME,
                "args": {"type": "array", "description": "Only used with functionName."},
                "forceRequire": {
                    "type": "boolean",
                    "description": "Reload the module, bypassing Roblox's module cache.",
                },
                "expectReturn": {"type": "boolean", "description": "Fail when the return value is nil."},
            },
        ),
        _output_schema(executed=_FLAG, called=_FLAG, returnValue={}, logs=_LOGS),
    ),
    Tool(
        "instance_create",
        "instance.create",
        "Create an instance",
        "Create an instance of a class under a parent.",
        "write",
        _input_schema("parent", {"className": _NAME, "name": _NAME}, ("className", "name")),
        _output_schema(created=_FLAG, className=_TEXT),
    ),
    Tool(
        "instance_set_property",
        "instance.set_property",
        "Set a property",
        "Set one property of an instance.",
        "write",
        _input_schema("instance", {"propertyName": _NAME, "value": _VALUE}, ("propertyName", "value")),
        _output_schema(updated=_FLAG, propertyName=_TEXT),
    ),
    Tool(
        "instance_delete",
        "instance.delete",
        "Delete an instance",
        "Delete an instance and its descendants.",
        "write",
        _input_schema("instance", {}),
        _output_schema(deleted=_FLAG),
    ),
    Tool(
        "instance_get",
        "instance.get",
        "Get an instance",
        "Return an instance's name, class, path and number of children.",
        "read",
        _input_schema("instance", {}),
        _output_schema(instance=_INSTANCE),
    ),
    Tool(
        "instance_list_children",
        "instance.list_children",
        "List children",
        "List the children of an instance, with paging.",
        "read",
        _input_schema("parent", {"limit": _LIMIT, "offset": _COUNT}),
        _output_schema(parentPath=_TEXT, total=_COUNT, children={"type": "array", "items": _INSTANCE}, **_PAGE),
    ),
    Tool(
        "instance_find",
        "instance.find",
        "Find instances",
        "Find descendants by a part of their name or by class, with paging.",
        "read",
        closed_schema(
            {
                "rootPath": _NAME,
                "rootId": _NAME,
                "nameContains": _NAME,
                "className": {**_NAME, "description": "A class or a base class: BasePart finds every Part."},
                "ignoreCase": {"type": "boolean", "description": "Match nameContains in any case."},
                "limit": _LIMIT,
                "maxResults": {**_LIMIT, "description": "Alias of limit; do not send both."},
                "offset": _COUNT,
                "studioId": _STUDIO,
            },
            **_FIND_RULES,
        ),
        _output_schema(rootPath=_TEXT, truncated=_FLAG, matches={"type": "array", "items": _INSTANCE}, **_PAGE),
    ),
)

_COUNTED: Final[Json] = {
    "count": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Number of changes; default 1."},
    "scope": {
        "type": "string",
        "enum": ["own", "tenant"],
        "description": "own (default): your changes only. tenant: any change; needs the scope roblox:undo-tenant.",
    },
}
_HISTORY: Final = _output_schema(count=_COUNT, changes={"type": "array", "items": _TEXT})

EXTENDED_TOOLS: Final = (
    Tool(
        "run_code",
        "code.run",
        "Run code",
        "Run Luau code in the Studio and return its value and output. It is one undo step; if it fails, its changes are"
        " rolled back.",
        "write",
        _input_schema(None, {"code": _NAME}, ("code",)),
        _output_schema(executed=_FLAG, returnValue={}, logs=_LOGS),
    ),
    Tool(
        "console_read",
        "console.read",
        "Read the output",
        "Return the lines of Studio's output after a cursor.",
        "read",
        _input_schema(None, {"cursor": _COUNT, "limit": _LIMIT}),
        _output_schema(
            lines={"type": "array", "items": {"type": "object"}}, nextCursor=_COUNT, hasMore=_FLAG, dropped=_COUNT
        ),
    ),
    Tool(
        "undo",
        "history.undo",
        "Undo",
        "Take back your newest changes in the Studio.",
        "write",
        _input_schema(None, _COUNTED),
        _HISTORY,
    ),
    Tool(
        "redo",
        "history.redo",
        "Redo",
        "Repeat your newest changes that were taken back.",
        "write",
        _input_schema(None, _COUNTED),
        _HISTORY,
    ),
)

STUDIO_LIST_SCHEMA: Final[Json] = {
    "type": "object",
    "properties": {"studios": {"type": "array", "items": {"type": "object"}}},
    "required": ["studios"],
}
