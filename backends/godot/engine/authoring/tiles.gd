# Tile sets and the cells of TileMapLayer nodes.
extends RefCounted

var _core: RefCounted


func _init(core: RefCounted) -> void:
	_core = core


# A tile set with one atlas: every cell of the texture becomes a tile. `solid` tiles get a full collision square.
func setup_set(tiles: TileSet, args: Dictionary) -> Variant:
	var size := Vector2i(int(args["tileSize"]["x"]), int(args["tileSize"]["y"]))
	tiles.tile_size = size
	var made := 0
	if args.has("texture"):
		var texture: Variant = load(args["texture"])
		if not texture is Texture2D:
			return _core.fail("invalid", "The engine cannot load %s as a texture: import the project's assets first." % args["texture"])
		made = _add_atlas(tiles, texture, size)
	elif args.has("colors"):
		made = _add_atlas(tiles, _painted(args["colors"], size), size)
	if args.get("solid", false):
		_make_solid(tiles, size)
	return {"tiles": made, "sources": tiles.get_source_count()}


func _add_atlas(tiles: TileSet, texture: Texture2D, size: Vector2i) -> int:
	var source := TileSetAtlasSource.new()
	source.texture = texture
	source.texture_region_size = size
	tiles.add_source(source)
	var made := 0
	var grid := source.get_atlas_grid_size()
	for y in grid.y:
		for x in grid.x:
			source.create_tile(Vector2i(x, y))
			made += 1
	return made


# One tile of each color, for projects without art.
func _painted(colors: Array, size: Vector2i) -> Texture2D:
	var image := Image.create_empty(size.x * colors.size(), size.y, false, Image.FORMAT_RGBA8)
	for index in colors.size():
		image.fill_rect(Rect2i(index * size.x, 0, size.x, size.y), Color.from_string(str(colors[index]), Color.MAGENTA))
	var texture := PortableCompressedTexture2D.new()
	# Outside the editor the engine drops the data that it would save.
	texture.keep_compressed_buffer = true
	texture.create_from_image(image, PortableCompressedTexture2D.COMPRESSION_MODE_LOSSLESS)
	return texture


func _make_solid(tiles: TileSet, size: Vector2i) -> void:
	tiles.add_physics_layer()
	var half := Vector2(size) / 2.0
	var square := PackedVector2Array([-half, Vector2(half.x, -half.y), half, Vector2(-half.x, half.y)])
	for index in tiles.get_source_count():
		var source: TileSetAtlasSource = tiles.get_source(tiles.get_source_id(index))
		for number in source.get_tiles_count():
			var data := source.get_tile_data(source.get_tile_id(number), 0)
			data.add_collision_polygon(0)
			data.set_collision_polygon_points(0, 0, square)


func paint(layer: TileMapLayer, args: Dictionary) -> Variant:
	for cell: Dictionary in args["tiles"]:
		var at := Vector2i(int(cell["position"]["x"]), int(cell["position"]["y"]))
		if int(cell.get("sourceId", 0)) < 0:
			layer.erase_cell(at)
			continue
		var atlas: Dictionary = cell.get("atlasCoords", {"x": 0, "y": 0})
		var coords := Vector2i(int(atlas["x"]), int(atlas["y"]))
		var source := int(cell.get("sourceId", 0))
		if layer.tile_set != null:
			if not layer.tile_set.has_source(source):
				return _core.fail("not_found", "The tile set has no source %d." % source)
			if not layer.tile_set.get_source(source).has_tile(coords):
				return _core.fail("not_found", "The tile set has no tile %s in source %d." % [coords, source])
		layer.set_cell(at, source, coords, int(cell.get("alternativeTile", 0)))
	_core.touched["tile_map_data"] = true
	var used := layer.get_used_rect()
	return {"cells": layer.get_used_cells().size(), "usedRect": [used.position.x, used.position.y, used.size.x, used.size.y]}
