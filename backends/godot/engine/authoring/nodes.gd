# Changes of single nodes that need the engine's own methods: anchors, shader parameters, navigation, meshes.
extends RefCounted

const PRESETS := [
	"top_left", "top_right", "bottom_left", "bottom_right", "center_left", "center_top", "center_right",
	"center_bottom", "center", "left_wide", "top_wide", "right_wide", "bottom_wide", "vcenter_wide", "hcenter_wide", "full_rect",
]

var _core: RefCounted


func _init(core: RefCounted) -> void:
	_core = core


func anchors(control: Control, args: Dictionary) -> Variant:
	if args.has("preset"):
		control.set_anchors_and_offsets_preset(PRESETS.find(args["preset"]))
		control.set("anchors_preset", PRESETS.find(args["preset"]))
	for side: String in ["left", "top", "right", "bottom"]:
		if args.has("anchor_" + side):
			control.set("anchor_" + side, float(args["anchor_" + side]))
		if args.has("offset_" + side):
			control.set("offset_" + side, float(args["offset_" + side]))
	return {}


func shader_parameter(node: Node, args: Dictionary) -> Variant:
	var name := str(args.get("materialProperty", "material"))
	var material: Variant = node.get(name)
	if node is MeshInstance3D and args.has("surfaceIndex"):
		name = "surface_material_override/%d" % int(args["surfaceIndex"])
		material = node.get(name)
	if not material is ShaderMaterial or material.shader == null:
		return _core.fail("not_found", "%s holds no ShaderMaterial with a shader." % name)
	for each in material.shader.get_shader_uniform_list():
		if str(each["name"]) == str(args["param"]):
			_core.set_value(node, null, "%s:shader_parameter/%s" % [name, args["param"]], args["value"])
			return {"materialProperty": name, "type": type_string(each["type"])}
	var known: Array = material.shader.get_shader_uniform_list().map(func(each: Dictionary) -> String: return str(each["name"]))
	return _core.fail("not_found", "The shader has no parameter %s." % args["param"], {"parameters": known})


# A region that covers a rectangle or the given outline, baked at once.
func navigation_2d(region: NavigationRegion2D, args: Dictionary) -> Variant:
	var polygon := NavigationPolygon.new()
	var outline := PackedVector2Array()
	for point: Dictionary in args["outline"]:
		outline.append(Vector2(point["x"], point["y"]))
	polygon.agent_radius = args.get("agentRadius", 0.0)
	polygon.add_outline(outline)
	NavigationServer2D.bake_from_source_geometry_data(polygon, NavigationMeshSourceGeometryData2D.new())
	region.navigation_polygon = polygon
	return {"polygons": polygon.get_polygon_count()}


func terrain(mesh: MeshInstance3D, args: Dictionary) -> Variant:
	var noise := FastNoiseLite.new()
	noise.seed = int(args.get("seed", 0))
	noise.frequency = args.get("frequency", 0.02)
	noise.fractal_octaves = int(args.get("octaves", 4))
	var size := int(args.get("size", 32))
	var tool := SurfaceTool.new()
	tool.begin(Mesh.PRIMITIVE_TRIANGLES)
	for z in size + 1:
		for x in size + 1:
			tool.set_uv(Vector2(x, z) / float(size))
			tool.add_vertex(Vector3(x - size / 2.0, noise.get_noise_2d(x, z) * float(args.get("heightScale", 5.0)), z - size / 2.0))
	for z in size:
		for x in size:
			var corner := z * (size + 1) + x
			for offset: int in [0, 1, size + 1, 1, size + 2, size + 1]:
				tool.add_index(corner + offset)
	tool.generate_normals()
	mesh.mesh = tool.commit()
	return {"vertices": (size + 1) * (size + 1)}
