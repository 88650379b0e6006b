"""All that a server lists, page by page."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Protocol, cast

from gateway.contract import BackendLists, Json
from gateway.errors import ForeignError
from gateway.upstream.talk import offered

_LISTS: Final = (
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
)
_MAX_PAGES: Final = 100
_METHOD_NOT_FOUND: Final = -32601


class Source(Protocol):
    """One server, asked by the gateway itself."""

    async def hello(self) -> Json:
        """Its capabilities and instructions."""
        ...

    async def ask(self, method: str, params: Json) -> Json: ...


async def read_lists(source: Source) -> BackendLists:
    hello = await source.hello()
    capabilities = offered(hello)
    info: Any = hello.get("serverInfo")
    lists: dict[str, tuple[Json, ...]] = {}
    for method, key, capability in _LISTS:
        lists[key] = await _all(source, method, key) if capability in capabilities else ()
    return BackendLists(
        tools=lists["tools"],
        resources=lists["resources"],
        templates=lists["resourceTemplates"],
        prompts=lists["prompts"],
        capabilities=capabilities,
        instructions=str(hello.get("instructions") or ""),
        info=cast("Json", info) if isinstance(info, dict) else {},
    )


def together(offers: Sequence[BackendLists]) -> BackendLists:
    """Everything that any of several processes of one server lists; the first to name a thing defines it."""
    if len(offers) == 1:
        return offers[0]
    first = offers[0]
    return BackendLists(
        tools=_union([each.tools for each in offers], "name"),
        resources=_union([each.resources for each in offers], "uri"),
        templates=_union([each.templates for each in offers], "uriTemplate"),
        prompts=_union([each.prompts for each in offers], "name"),
        capabilities={key: value for each in reversed(offers) for key, value in each.capabilities.items()},
        instructions=first.instructions,
        info=first.info,
    )


def _union(lists: Sequence[tuple[Json, ...]], key: str) -> tuple[Json, ...]:
    kept: dict[str, Json] = {}
    for item in chain.from_iterable(lists):
        # Not checked yet: whatever stands in a list that is no object is refused later, by itself.
        kept.setdefault(repr(item.get(key) if isinstance(item, dict) else item), item)  # pyright: ignore[reportUnnecessaryIsInstance]
    return tuple(kept.values())


async def _all(source: Source, method: str, key: str) -> tuple[Json, ...]:
    items: list[Json] = []
    params: Json = {}
    for _ in range(_MAX_PAGES):
        try:
            page = await source.ask(method, params)
        except ForeignError as exc:
            if exc.code == _METHOD_NOT_FOUND:
                break  # it has the capability but not this list
            raise
        found: Any = page.get(key)
        if isinstance(found, list):
            items.extend(cast("list[Json]", found))
        if (cursor := page.get("nextCursor")) is None:
            break
        params = {"cursor": cursor}
    return tuple(items)
