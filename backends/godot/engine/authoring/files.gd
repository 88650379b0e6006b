# Resource files that need the engine's own methods: bus layouts, navigation meshes, shader materials.
extends RefCounted

var _core: RefCounted


func _init(core: RefCounted) -> void:
	_core = core


func _bus(layout: AudioBusLayout, name: String) -> int:
	var index := 0
	while layout.get("bus/%d/name" % index) != null:
		if str(layout.get("bus/%d/name" % index)) == name:
			return index
		index += 1
	return -1


func add_bus(layout: AudioBusLayout, args: Dictionary) -> Variant:
	var parent := str(args.get("parentBus", "Master"))
	var name := str(args["busName"])
	if _bus(layout, "Master") < 0:
		_set_bus(layout, 0, {"name": "Master"})
	if name != "Master" and _bus(layout, parent) < 0:
		return _core.fail("not_found", "There is no bus %s." % parent)
	var index := _bus(layout, name)
	if index < 0:
		index = 0
		while layout.get("bus/%d/name" % index) != null:
			index += 1
	var values := {"name": name, "solo": args.get("solo", false), "mute": args.get("mute", false), "volume_db": float(args.get("volume", 0.0))}
	if name != "Master":
		values["send"] = StringName(parent)
	_set_bus(layout, index, values)
	return {"busIndex": index}


func _set_bus(layout: AudioBusLayout, index: int, values: Dictionary) -> void:
	for key: String in values:
		layout.set("bus/%d/%s" % [index, key], StringName(values[key]) if key == "name" else values[key])


func set_bus_volume(layout: AudioBusLayout, args: Dictionary) -> Variant:
	var index := _bus(layout, str(args["bus"]))
	if index < 0:
		return _core.fail("not_found", "There is no bus %s." % args["bus"])
	layout.set("bus/%d/volume_db" % index, float(args["volumeDb"]))
	return {"busIndex": index}


func add_effect(layout: AudioBusLayout, args: Dictionary) -> Variant:
	var index := _bus(layout, str(args["busName"]))
	if index < 0:
		return _core.fail("not_found", "There is no bus %s." % args["busName"], {"hint": "Create it with create_audio_bus."})
	var effect: Resource = ClassDB.instantiate(args["class"])
	for name: String in args.get("effectParams", {}):
		_core.set_value(effect, null, name, args["effectParams"][name])
		if _core.failed():
			return null
	var slot := 0
	while layout.get("bus/%d/effect/%d/effect" % [index, slot]) != null:
		slot += 1
	layout.set("bus/%d/effect/%d/effect" % [index, slot], effect)
	layout.set("bus/%d/effect/%d/enabled" % [index, slot], true)
	return {"busIndex": index, "effectIndex": slot}


# Sets properties, and gives a navigation mesh the polygons of a flat rectangle.
func navigation_3d(mesh: NavigationMesh, args: Dictionary) -> Variant:
	for name: String in args.get("properties", {}):
		_core.set_value(mesh, null, name, args["properties"][name])
		if _core.failed():
			return null
	if args.has("scene"):
		var source := NavigationMeshSourceGeometryData3D.new()
		var packed: Variant = load(args["scene"])
		if not packed is PackedScene:
			return _core.fail("invalid", "The engine cannot load %s as a scene." % args["scene"])
		var root: Node = packed.instantiate()
		_core._host.root.add_child(root)
		NavigationServer3D.parse_source_geometry_data(mesh, source, root)
		NavigationServer3D.bake_from_source_geometry_data(mesh, source)
		root.free()
	return {"polygons": mesh.get_polygon_count()}


func navigation_2d(polygon: NavigationPolygon, args: Dictionary) -> Variant:
	polygon.agent_radius = args.get("agentRadius", polygon.agent_radius)
	NavigationServer2D.bake_from_source_geometry_data(polygon, NavigationMeshSourceGeometryData2D.new())
	return {"polygons": polygon.get_polygon_count()}
