"""Plans the reference: an index, a page per module and a page per class, within the budgets of the run."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from backends.launch.surface.model import CONTAINERS
from backends.launch.workers import reference_text
from backends.launch.workers.page_sources import OutlinePart, PageSources, SectionTarget, Slugs, plain
from gateway.contract import Json

_RESERVED_PAGES: Final = 30
"""Pages that the other sections may need."""
_MAX_NAMES: Final = 12
_LINE_MARGIN: Final = 40


def symbol_key(symbol: Json) -> str:
    return f"{symbol['module']}#{symbol['qualified_name']}@{symbol['path']}:{symbol['line']}"


def pages(target: SectionTarget, sources: PageSources) -> Iterator[Json]:
    if not sources.symbols:
        return
    modules: dict[str, list[Json]] = defaultdict(list)
    for symbol in sources.symbols:
        modules[symbol["module"]].append(symbol)
    budgets = target.config["budgets"]
    limit = min(budgets["max_files_changed"], budgets["max_file_writes"]) - _RESERVED_PAGES
    by_class = 1 + len(modules) + sum(1 for each in sources.symbols if _has_page(each))
    own_pages = by_class <= limit
    slugs = Slugs()
    found: list[Json] = []
    for module in sorted(modules):
        folder = slugs.take(module)
        found.extend(_module_pages(target, sources, module, modules[module], folder, own_pages=own_pages))
    roots = [page["url_path"] for page in found if page["output_path"].endswith("/_index.md")]
    yield _index(target, sources, modules, roots)
    yield from found


def _has_page(symbol: Json) -> bool:
    return symbol["kind"] in CONTAINERS and not symbol["container"]


def _index(target: SectionTarget, sources: PageSources, modules: dict[str, list[Json]], roots: list[str]) -> Json:
    title = f"{sources.name} API reference"
    count = sum(1 for each in sources.symbols if each["kind"] != "module")
    noun = "module" if len(modules) == 1 else "modules"
    description = f"Public API of {sources.name}: {count} symbols in {len(modules)} {noun}."
    outline = [OutlinePart("Modules", "pages", (), (), roots), OutlinePart("Symbols", "index")]
    return target.page("", title, description, outline)


def _module_pages(
    target: SectionTarget, sources: PageSources, module: str, symbols: list[Json], folder: str, *, own_pages: bool
) -> Iterator[Json]:
    slugs = Slugs()
    owned: dict[str, list[Json]] = defaultdict(list)
    loose: list[Json] = []
    owners = {each["name"]: each for each in symbols if _has_page(each)} if own_pages else {}
    for symbol in symbols:
        owner = symbol["qualified_name"].split(".")[0] if not _is_plain(symbol) else ""
        if owner in owners:
            owned[owner].append(symbol)
        else:
            loose.append(symbol)
    limit = target.config["budgets"]["max_lines_per_file"] - _LINE_MARGIN
    described = next((each for each in symbols if each["kind"] == "module"), None)
    more: list[Json] = []
    for name, members in owned.items():
        for number, chunk in enumerate(_chunks(members, limit), 1):
            title = f"{module}.{name}" if number == 1 else f"{module}.{name} (part {number})"
            slug = f"{folder}/{slugs.take(name if number == 1 else f'{name}-part-{number}')}"
            outline = [*_symbol_parts(chunk), *(_example(owners[name], sources) if number == 1 else [])]
            description = _class_description(owners[name], members, number)
            more.append(target.page(slug, title, description, outline, _origin(owners[name])))
    chunks = _chunks([each for each in loose if each is not described], limit) or [[]]
    for number, chunk in enumerate(chunks[1:], 2):
        slug, title = f"{folder}/{slugs.take(f'part-{number}')}", f"{module} (part {number})"
        description = _module_description(module, symbols, described, number)
        more.append(target.page(slug, title, description, _symbol_parts(chunk), _origin(chunk[0])))
    outline = [OutlinePart("", "module", (), (), [symbol_key(described)])] if described is not None else []
    if owned:
        outline.append(OutlinePart("Types", "names", (), (), [symbol_key(owners[name]) for name in owned]))
    outline += _symbol_parts(chunks[0])
    if parts := [page["url_path"] for page in more if "(part " in page["title"]]:
        outline.append(OutlinePart("More", "pages", (), (), parts))
    description = _module_description(module, symbols, described, 1)
    yield target.page(f"{folder}/", module, description, outline, _origin(described or symbols[0]))
    yield from more


def _example(owner: Json, sources: PageSources) -> list[OutlinePart]:
    """Return the shortest example that names the class, if its documentation shows none."""
    if any(block["kind"] == "code" for block in owner["blocks"]):
        return []
    pattern = re.compile(rf"(?<![\w.]){re.escape(owner['name'])}\b")
    found = sorted(
        (each for each in sources.snippets if pattern.search(each["code"])), key=lambda each: len(each["code"])
    )
    return [OutlinePart("Example", "code", (), [found[0]["snippet_id"]])] if found else []


def _is_plain(symbol: Json) -> bool:
    return symbol["kind"] == "module"


def _symbol_parts(symbols: Sequence[Json]) -> list[OutlinePart]:
    """Return one part per qualified name. Overloads share a part."""
    grouped: dict[str, list[str]] = {}
    for symbol in symbols:
        grouped.setdefault(symbol["qualified_name"], []).append(symbol_key(symbol))
    return [OutlinePart(name, "symbol", (), (), keys) for name, keys in grouped.items()]


def _origin(symbol: Json) -> Json:
    return {"path": symbol["path"], "line": symbol["line"]}


def _module_description(module: str, symbols: list[Json], described: Json | None, number: int) -> str:
    text = plain(reference_text.summary(described)) if described is not None else ""
    kinds = _count(symbols)
    base = f"Reference of {module}: {kinds}."
    part = f" Part {number}." if number > 1 else ""
    return (f"{text} {base}" if len(text) >= 20 else base)[:300] + part


def _class_description(owner: Json, members: list[Json], number: int) -> str:
    text = plain(reference_text.summary(owner))
    inside = _count([each for each in members if each is not owner])
    base = f"Reference of the {owner['kind']} {owner['name']} in {owner['module']}" + (
        f": {inside}." if inside else "."
    )
    part = f" Part {number}." if number > 1 else ""
    return (f"{text} {base}" if len(text) >= 20 else base)[:300] + part


def _count(symbols: Sequence[Json]) -> str:
    counted: dict[str, int] = {}
    for symbol in symbols:
        if symbol["kind"] != "module":
            counted[symbol["kind"]] = counted.get(symbol["kind"], 0) + 1
    return ", ".join(f"{count} {_plural(kind, count)}" for kind, count in counted.items())


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return {"class": "classes", "property": "properties"}.get(kind, f"{kind}s")


def _chunks(symbols: Sequence[Json], limit: int) -> list[list[Json]]:
    """Split the symbols into groups whose rendered text fits the limit of lines."""
    chunks: list[list[Json]] = []
    used = limit + 1
    for symbol in symbols:
        lines = _line_count(symbol)
        if used + lines > limit:
            chunks.append([])
            used = 0
        chunks[-1].append(symbol)
        used += lines
    return chunks


def _line_count(symbol: Json) -> int:
    inner = sum(part.text.count("\n") + 4 for part in reference_text.parts(symbol))
    return inner + symbol["signature"].count("\n") + 10


def symbols_in(code: str, symbols: Sequence[Json]) -> list[str]:
    """Return the keys of the top-level symbols that the code names."""
    words = set(re.findall(r"[A-Za-z_]\w*", code))
    found = [
        each
        for each in symbols
        if each["name"] in words and not each["container"] and len(each["name"]) > 2 and each["kind"] != "module"
    ]
    unique = {each["name"]: symbol_key(each) for each in reversed(found)}
    return list(reversed(unique.values()))[:_MAX_NAMES]
