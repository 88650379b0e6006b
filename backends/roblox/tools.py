"""The tools of the contract as a table: what each takes, gives, and asks of the Studio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from backends.gox.action import closed
from gateway.contract import Json

_TEXT: Final[Json] = {"type": "string"}
_NAME: Final[Json] = {"type": "string", "minLength": 1}
_FLAG: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_LIMIT: Final[Json] = {"type": "integer", "minimum": 1}
_STUDIO: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "description": "Which Studio, as list_studios names them; by default your own, or the only one.",
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


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    operation: str
    title: str
    description: str
    effect: Literal["read", "write"]
    takes: Json
    gives: Json


def _takes(target: str | None, properties: Json, required: Sequence[str] = (), **more: Any) -> Json:
    """Its own properties, and a target given by path or by id."""
    targets: Json = {}
    if target is not None:
        either = [f"{target}Path", f"{target}Id"]
        targets = {either[0]: _NAME, either[1]: _NAME}
        more = {"anyOf": [{"required": [each]} for each in either], **more}
    return closed({**targets, **properties, "studioId": _STUDIO}, required, **more)


def _gives(**properties: Json) -> Json:
    rehearsed: Json = {"dryRun": _FLAG, "diffSummary": _TEXT, "path": _TEXT, "instanceId": _TEXT}
    return {"type": "object", "properties": {**rehearsed, **properties}}


_PAGE: Final[Json] = {"offset": _COUNT, "limit": _LIMIT, "count": _COUNT, "hasMore": _FLAG, "nextOffset": _COUNT}
_FIND_RULES: Final[Json] = {
    "allOf": [
        {"anyOf": [{"required": ["rootPath"]}, {"required": ["rootId"]}]},
        {"anyOf": [{"required": ["nameContains"]}, {"required": ["className"]}]},
        {"not": {"required": ["limit", "maxResults"]}},
    ]
}

TOOLS: Final = (
    Tool(
        "bridge_ping",
        "bridge.ping",
        "Ping Studio",
        "Ask the Studio whether it is there.",
        "read",
        _takes(None, {}),
        _gives(ok=_FLAG, placeId={"type": "number"}, studio=_FLAG),
    ),
    Tool(
        "script_create",
        "script.create",
        "Create a script",
        "Create a script under a parent.",
        "write",
        _takes(
            "parent",
            {
                "name": _NAME,
                "scriptType": {"type": "string", "enum": ["Script", "LocalScript", "ModuleScript"]},
                "source": _TEXT,
            },
            ("name", "scriptType", "source"),
        ),
        _gives(created=_FLAG, className=_TEXT),
    ),
    Tool(
        "script_update",
        "script.update",
        "Update a script",
        "Replace a script's source.",
        "write",
        _takes("script", {"source": _TEXT}, ("source",)),
        _gives(updated=_FLAG),
    ),
    Tool(
        "script_delete",
        "script.delete",
        "Delete a script",
        "Delete a script.",
        "write",
        _takes("script", {}),
        _gives(deleted=_FLAG),
    ),
    Tool(
        "script_get_source",
        "script.get_source",
        "Read a script",
        "Read a script's source.",
        "read",
        _takes("script", {}),
        _gives(className=_TEXT, source=_TEXT),
    ),
    Tool(
        "script_execute",
        "script.execute",
        "Execute a script",
        "Require a script as a module and, with functionName, call that function of what it returns.",
        "write",
        _takes(
            "script",
            {
                "functionName": _NAME,
                "args": {"type": "array", "description": "Only used with functionName."},
                "forceRequire": {"type": "boolean", "description": "Load it anew, past Roblox's cache of modules."},
                "expectReturn": {"type": "boolean", "description": "Fail when it returns nil."},
            },
        ),
        _gives(executed=_FLAG, called=_FLAG, returnValue={}),
    ),
    Tool(
        "instance_create",
        "instance.create",
        "Create an instance",
        "Create an instance of a class under a parent.",
        "write",
        _takes("parent", {"className": _NAME, "name": _NAME}, ("className", "name")),
        _gives(created=_FLAG, className=_TEXT),
    ),
    Tool(
        "instance_set_property",
        "instance.set_property",
        "Set a property",
        "Set one property of an instance.",
        "write",
        _takes("instance", {"propertyName": _NAME, "value": _VALUE}, ("propertyName", "value")),
        _gives(updated=_FLAG, propertyName=_TEXT),
    ),
    Tool(
        "instance_delete",
        "instance.delete",
        "Delete an instance",
        "Delete an instance and all below it.",
        "write",
        _takes("instance", {}),
        _gives(deleted=_FLAG),
    ),
    Tool(
        "instance_get",
        "instance.get",
        "Look at an instance",
        "An instance's name, class, path and number of children.",
        "read",
        _takes("instance", {}),
        _gives(instance=_INSTANCE),
    ),
    Tool(
        "instance_list_children",
        "instance.list_children",
        "List children",
        "The children of an instance, page by page.",
        "read",
        _takes("parent", {"limit": _LIMIT, "offset": _COUNT}),
        _gives(parentPath=_TEXT, total=_COUNT, children={"type": "array", "items": _INSTANCE}, **_PAGE),
    ),
    Tool(
        "instance_find",
        "instance.find",
        "Find instances",
        "Descendants whose name contains a text, or whose class is given, page by page.",
        "read",
        closed(
            {
                "rootPath": _NAME,
                "rootId": _NAME,
                "nameContains": _NAME,
                "className": _NAME,
                "limit": _LIMIT,
                "maxResults": {**_LIMIT, "description": "Another name of limit; send one of them."},
                "offset": _COUNT,
                "studioId": _STUDIO,
            },
            **_FIND_RULES,
        ),
        _gives(rootPath=_TEXT, truncated=_FLAG, matches={"type": "array", "items": _INSTANCE}, **_PAGE),
    ),
)

STUDIOS: Final[Json] = {
    "type": "object",
    "properties": {"studios": {"type": "array", "items": {"type": "object"}}},
    "required": ["studios"],
}
