"""Handlers for tile sets, tile map layers and levels of LDtk."""

import json
from typing import Any

from backends.godot import files
from backends.godot.envelope import Outcome
from backends.godot.handlers.nodes import add_many, add_typed
from backends.godot.handlers.resource_editing import change_resource
from backends.godot.handlers.scene_editing import change_node
from backends.godot.handlers.scenes import create as create_scene
from backends.godot.tool import ToolCall
from gateway.contract import Json
from gateway.errors import Fault, Kind


async def create_set(call: ToolCall) -> Outcome:
    location = call.resolve_path("tilesetPath")
    args: Json = {"tileSize": call.get("tileSize"), "solid": bool(call.get("solid", False))}
    if call.get("texturePath"):
        texture = call.resolve_path("texturePath")
        if not files.exists(texture):
            raise Fault(Kind.NOT_FOUND, f"There is no texture {texture.res}.")
        args["texture"] = texture.res
    if call.get("colors"):
        args["colors"] = call.get("colors")
    summary = f"Created {location.res}."
    return await change_resource(
        call, location, "TileSet", operation="tiles.setup_set", args=args, summary=summary, create_only=True
    )


async def create_layer(call: ToolCall) -> Outcome:
    tiles = call.resolve_path("tilesetPath")
    if not files.exists(tiles):
        raise Fault(
            Kind.NOT_FOUND, f"There is no tile set {tiles.res}.", suggested_fix="Create it with create_tileset first."
        )
    properties: Json = {"tile_set": tiles.res, "z_index": int(call.get("zIndex", 0))}
    return await add_typed(call, "TileMapLayer", properties)


async def set_tile(call: ToolCall) -> Outcome:
    tile = {name: call.get(name) for name in ("position", "sourceId", "atlasCoords", "alternativeTile")}
    return await _paint(call, call.text("tilemapNodePath"), [tile])


async def paint(call: ToolCall) -> Outcome:
    return await _paint(call, call.text("tilemapNodePath"), call.get("tiles"))


async def _paint(call: ToolCall, node_path: str, tiles: list[Json]) -> Outcome:
    if call.get("layer", 0):
        raise Fault(
            Kind.UNSUPPORTED,
            "A TileMapLayer has one layer: layer must be 0.",
            suggested_fix="Add another TileMapLayer with create_tilemap_layer for each layer.",
        )
    cleaned = [{key: value for key, value in tile.items() if value is not None} for tile in tiles]
    return await change_node(
        call,
        node_path=node_path,
        operation="tiles.paint",
        args={"tiles": cleaned},
        summary=f"Painted {len(tiles)} cells.",
        of_class="TileMapLayer",
    )


async def create_tilemap(call: ToolCall) -> Outcome:
    """Create a layer with its tile set, and paint its cells."""
    size = call.get("tileSize") or {"x": 16, "y": 16}
    if not call.get("tileSetPath"):
        path = f"{call.text('nodeName').lower()}_tiles.tres"
        made = call.with_arguments(tilesetPath=path, tileSize=size, texturePath=call.get("tileSetTexturePath"))
        await create_set(made)
        call = call.with_arguments(tileSetPath=path)
    layer = await create_layer(call.with_arguments(tilesetPath=call.text("tileSetPath")))
    cells = call.get("cells")
    if not cells:
        return layer
    tiles = [
        {
            "position": {"x": cell["x"], "y": cell["y"]},
            "sourceId": cell.get("sourceId", 0),
            "atlasCoords": cell.get("atlasCoords", {"x": 0, "y": 0}),
        }
        for cell in cells
    ]
    return await _paint(call.with_arguments(layer=0), layer.details["nodePath"], tiles)


async def import_ldtk(call: ToolCall) -> Outcome:
    """Create a scene from a level of an LDtk file: tile layers as nodes, entities as nodes of mapped classes."""
    source = call.resolve_path("ldtkPath")
    try:
        data: Json = json.loads(files.read_text(source, "The LDtk file"))
        levels: list[Json] = data["levels"]
    except (ValueError, KeyError) as exc:
        raise Fault(Kind.INVALID_INPUT, f"{source.res} is not an LDtk project.") from exc
    wanted = call.get("levelIdentifier")
    level = next((each for each in levels if wanted in (None, each["identifier"])), None)
    if level is None:
        raise Fault(
            Kind.NOT_FOUND, f"There is no level {wanted}.", details={"levels": [_name(each) for each in levels]}
        )
    output = call.text("outputPath", f"{_name(level).lower()}.tscn")
    scene_call = call.with_arguments(scenePath=output, rootNodeType="Node2D", rootNodeName=_name(level))
    await create_scene(scene_call)
    mapping = {each["ldtkIdentifier"]: each for each in call.get("entityMapping", [])}
    details: Json = {"scenePath": output, "level": _name(level), "layers": [], "entities": 0}
    for layer in reversed(level.get("layerInstances") or []):
        tiles: list[Json] = [*layer.get("gridTiles", []), *layer.get("autoLayerTiles", [])]
        if tiles:
            details["layers"].append(await _import_layer(scene_call, source.res, layer, tiles))
        items = [_entity(each, mapping) for each in layer.get("entityInstances", [])]
        if items:
            await add_many(scene_call.with_arguments(items=items))
            details["entities"] += len(items)
    return Outcome(f"Imported the level {_name(level)} as {output}.", details)


def _name(level: Json) -> str:
    return str(level["identifier"])


async def _import_layer(call: ToolCall, source: str, layer: Json, tiles: list[Json]) -> str:
    size = int(layer["__gridSize"])
    name = str(layer["__identifier"])
    given = call.get("tileSize") or {"x": size, "y": size}
    tileset = f"{name.lower()}_tiles.tres"
    texture: Any = layer.get("__tilesetRelPath")
    folder = source.removeprefix("res://").rpartition("/")[0]
    made = call.with_arguments(
        tilesetPath=tileset,
        tileSize=given,
        texturePath=f"{folder}/{texture}".lstrip("/") if texture else None,
        solid=bool(call.get("createCollision", False)),
    )
    await create_set(made)
    added = await create_layer(call.with_arguments(tilesetPath=tileset, nodeName=name))
    cells = [
        {
            "position": {"x": tile["px"][0] // size, "y": tile["px"][1] // size},
            "sourceId": 0,
            "atlasCoords": {"x": tile["src"][0] // size, "y": tile["src"][1] // size},
        }
        for tile in tiles
    ]
    await _paint(call, added.details["nodePath"], cells)
    return name


def _entity(entity: Json, mapping: dict[str, Json]) -> Json:
    known = mapping.get(entity["__identifier"], {})
    properties = {**known.get("properties", {}), "position": entity["px"]}
    return {
        "nodeName": entity["__identifier"],
        "nodeType": known.get("godotNodeType", "Marker2D"),
        "properties": properties,
    }
