# Operations of the headless engine: reads one JSON line, writes one JSON line with a marker, until the input ends.
# Scenes are read through SceneState and not instantiated, unless an operation says so: reading must not run scripts.
extends SceneTree

const LINE := 1 << 22

var _mark := ""
var _failure := {}
var _values: RefCounted
var _author: RefCounted


func _initialize() -> void:
	# The editor add-on converts values by the same rules.
	_values = load(get_script().resource_path.get_base_dir().path_join("../addon/values.gd").simplify_path()).new()
	_author = load(get_script().resource_path.get_base_dir().path_join("authoring/core.gd")).new(self, _values)
	_mark = OS.read_string_from_stdin(LINE).strip_edges()
	while true:
		var line := OS.read_string_from_stdin(LINE)
		if line.is_empty():
			break
		# Standard error is never buffered, independent of the project's settings.
		printerr(_mark + JSON.stringify(_answer(line)))
	quit(0)


func _answer(line: String) -> Dictionary:
	_failure = {}
	var asked: Variant = JSON.parse_string(line)
	if not asked is Dictionary or not has_method("op_" + str(asked.get("operation"))):
		return {"ok": false, "kind": "unsupported", "message": "The engine does not know this operation."}
	var value: Variant = call("op_" + str(asked["operation"]), asked.get("params", {}))
	if not _failure.is_empty():
		return _failure
	return {"ok": true, "value": value}


func _fail(kind: String, message: String, details := {}) -> Variant:
	if _failure.is_empty():
		_failure = {"ok": false, "kind": kind, "message": message, "details": details}
	return null


# ---- scenes -------------------------------------------------------------------------------------------------------


func _state(path: String) -> SceneState:
	if not FileAccess.file_exists(path):
		_fail("not_found", "There is no scene %s." % path)
		return null
	var scene: Variant = ResourceLoader.load(path, "", ResourceLoader.CACHE_MODE_IGNORE)
	if not scene is PackedScene:
		_fail("invalid", "The engine cannot load %s as a scene." % path)
		return null
	return scene.get_state()


func _index(state: SceneState, path: String) -> int:
	for index in state.get_node_count():
		var found := str(state.get_node_path(index)).trim_prefix("./")
		if found == path:
			return index
	_fail("not_found", "There is no node %s in this scene." % path)
	return -1


func _stored(state: SceneState, index: int) -> Dictionary:
	var stored := {}
	for each in state.get_node_property_count(index):
		stored[str(state.get_node_property_name(index, each))] = state.get_node_property_value(index, each)
	return stored


# Returns the class and script of a node; for an instance, those of the instanced scene's root.
func _kind(state: SceneState, index: int) -> Dictionary:
	var stored := _stored(state, index)
	var script: Variant = stored.get("script")
	var type := str(state.get_node_type(index))
	var instance := state.get_node_instance(index)
	if type.is_empty() and instance != null:
		var inner := _kind(instance.get_state(), 0)
		return {"class": inner["class"], "script": script if script is Script else inner["script"]}
	return {"class": type if not type.is_empty() else "Node", "script": script if script is Script else null}


func op_load_scene(params: Dictionary) -> Variant:
	var state := _state(params["scene"])
	if state == null:
		return null
	var nodes := []
	for index in state.get_node_count():
		nodes.append({"path": str(state.get_node_path(index)).trim_prefix("./"), "class": _kind(state, index)["class"]})
	return {"nodes": nodes, "dependencies": _missing(params["scene"])}


# Compares the expected values with the values that the engine reads from the file.
func op_read_back(params: Dictionary) -> Variant:
	var state := _state(params["scene"])
	if state == null:
		return null
	var wrong := []
	for expected: Dictionary in params["nodes"]:
		var index := _index(state, expected["path"])
		if index < 0:
			return null
		var stored := _stored(state, index)
		for name: String in expected["values"]:
			if not stored.has(name) or _author.digest(stored[name]) != expected["values"][name]:
				wrong.append("%s:%s" % [expected["path"], name])
	return {"wrong": wrong, "nodes": state.get_node_count()}


func _shown(value: Variant) -> String:
	if value is Resource:
		var inner: bool = value.resource_path.is_empty() or "::" in value.resource_path
		return value.get_class() if inner else value.resource_path
	return var_to_str(value)


func op_node_properties(params: Dictionary) -> Variant:
	var state := _state(params["scene"])
	var index := _index(state, params["node"]) if state != null else -1
	if index < 0:
		return null
	var kind := _kind(state, index)
	var shown := {}
	for name in _stored(state, index).keys():
		shown[name] = _shown(_stored(state, index)[name])
	return {"class": kind["class"], "properties": shown}


func _missing(path: String) -> Array:
	var missing := []
	for each in ResourceLoader.get_dependencies(path):
		var target := each.get_slice("::", 2) if "::" in each else each
		if not ResourceLoader.exists(target):
			missing.append(target)
	return missing


func op_load_resource(params: Dictionary) -> Variant:
	var found: Variant = ResourceLoader.load(params["path"], "", ResourceLoader.CACHE_MODE_IGNORE)
	if not found is Resource:
		return _fail("invalid", "The engine cannot load %s." % params["path"])
	return {"class": found.get_class()}


# Returns a scene in binary form, or an imported one, as text.
func op_scene_text(params: Dictionary) -> Variant:
	var scene: Variant = ResourceLoader.load(params["scene"], "", ResourceLoader.CACHE_MODE_IGNORE)
	if not scene is PackedScene:
		return _fail("invalid", "The engine cannot load %s as a scene." % params["scene"])
	var scratch := "user://gatehouse_reading.tscn"
	var code := ResourceSaver.save(scene, scratch)
	var text := FileAccess.get_file_as_string(scratch) if code == OK else ""
	DirAccess.remove_absolute(scratch)
	return {"text": text} if not text.is_empty() else _fail("internal", "The engine could not read %s." % params["scene"])


# Writes a temporary file, which the gateway moves to its final path.
func op_save_copy(params: Dictionary) -> Variant:
	var scene: Variant = ResourceLoader.load(params["scene"], "", ResourceLoader.CACHE_MODE_IGNORE)
	if not scene is Resource:
		return _fail("invalid", "The engine cannot load %s." % params["scene"])
	return _save(scene, params["output"])


func _save(resource: Resource, path: String) -> Variant:
	var code := ResourceSaver.save(resource, path)
	if code != OK:
		return _fail("internal", "The engine could not save: %s." % error_string(code))
	# On a full disk the engine reports success.
	var written := FileAccess.get_file_as_bytes(path)
	if written.is_empty() or written[-1] != 10 or not ResourceLoader.load(path, "", ResourceLoader.CACHE_MODE_IGNORE) is Resource:
		return _fail("internal", "The engine could not save: it may be that there is no room left on the disk.")
	return {"class": resource.get_class()}


func op_mesh_library(params: Dictionary) -> Variant:
	var scene: Variant = load(params["scene"])
	if not scene is PackedScene:
		return _fail("invalid", "The engine cannot load %s as a scene." % params["scene"])
	var root: Node = scene.instantiate()
	var library := MeshLibrary.new()
	var wanted: Array = params.get("names", [])
	for node in root.find_children("*", "MeshInstance3D", true, false):
		if node.mesh == null or (not wanted.is_empty() and not str(node.name) in wanted):
			continue
		var id := library.get_last_unused_item_id()
		library.create_item(id)
		library.set_item_name(id, node.name)
		library.set_item_mesh(id, node.mesh)
	root.free()
	if library.get_item_list().is_empty():
		return _fail("not_found", "The scene has no such MeshInstance3D with a mesh.")
	_save(library, params["output"])
	return {"items": library.get_item_list().size()}


# Changes a node or a resource through the engine and returns what a file must store for it.
func op_author(params: Dictionary) -> Variant:
	return _author.run(params)


# ---- values -------------------------------------------------------------------------------------------------------


# Finds an engine class or a `class_name` of the project's scripts.
func _resolve(type: String, base: String) -> Variant:
	if ClassDB.class_exists(type):
		if not ClassDB.is_parent_class(type, base) or not ClassDB.can_instantiate(type):
			return _fail("invalid", "%s cannot be made as a %s." % [type, base])
		return {"class": type, "script": null}
	for each in ProjectSettings.get_global_class_list():
		if str(each["class"]) == type:
			var script: Variant = load(each["path"])
			var native := str(script.get_instance_base_type()) if script is Script else ""
			if ClassDB.is_parent_class(native, base):
				return {"class": native, "script": script}
	return _fail("invalid", "The engine has no class %s." % type, {"similar": _similar(type)})


func _similar(type: String) -> Array:
	var found := []
	for name in ClassDB.get_class_list():
		if name.similarity(type) > 0.6 and ClassDB.can_instantiate(name):
			found.append(name)
	return found.slice(0, 5)


func _value(object: Object, script: Variant, name: String, given: Variant) -> Variant:
	var value: Variant = _values.settled(object, script, name, given)
	var failure: Dictionary = _values.failure
	if not failure.is_empty():
		return _fail(failure["kind"], failure["message"], failure["details"])
	return value


# ---- resources, identifiers, classes ------------------------------------------------------------------------------


func op_create_resource(params: Dictionary) -> Variant:
	var resolved: Variant = _resolve(str(params["type"]), "Resource")
	if resolved == null:
		return null
	var made: Resource = ClassDB.instantiate(resolved["class"])
	for name: String in params.get("properties", {}):
		var value: Variant = _value(made, null, name, params["properties"][name])
		if not _failure.is_empty():
			return null
		made.set(name, value)
		if not value is Object and not _values.same(made.get(name), value):
			return _fail("invalid", "%s does not take this value." % name, {"property": name})
	return _save(made, params["output"])


func _uid(path: String) -> String:
	var id := ResourceLoader.get_resource_uid(path)
	return ResourceUID.id_to_text(id) if id != ResourceUID.INVALID_ID else ""


func op_uid(params: Dictionary) -> Variant:
	return {"uid": _uid(params["path"])}


func op_new_uids(params: Dictionary) -> Variant:
	var made := []
	for _each in int(params["count"]):
		made.append(ResourceUID.id_to_text(ResourceUID.create_id()))
	return {"uids": made}


func op_evaluate(params: Dictionary) -> Variant:
	var names := PackedStringArray(params.get("names", []))
	var bare := RegEx.create_from_string("\"(?:[^\"\\\\]|\\\\.)*\"").sub(params["expression"], "", true)
	for word in RegEx.create_from_string("[A-Za-z_]\\w*").search_all(bare):
		if Engine.has_singleton(word.get_string()) and not word.get_string() in names:
			return _fail("denied", "An expression may not use %s." % word.get_string())
	var expression := Expression.new()
	if expression.parse(params["expression"], names) != OK:
		return _fail("invalid", "The expression cannot be read: %s" % expression.get_error_text())
	# Without a base instance only the supplied values and the engine's built-in functions are accessible.
	var value: Variant = expression.execute(params.get("values", []), null, false, true)
	if expression.has_execute_failed():
		return _fail("invalid", "The expression failed: %s" % expression.get_error_text())
	return {"value": var_to_str(value), "json": _plain(value), "type": type_string(typeof(value))}


func _plain(value: Variant) -> Variant:
	return value if value is bool or value is int or value is float or value is String or value == null else var_to_str(value)


func op_describe(params: Dictionary) -> Variant:
	var type := str(params["class"])
	if not ClassDB.class_exists(type):
		return _fail("not_found", "The engine has no class %s." % type, {"similar": _similar(type)})
	var own := bool(params.get("own", false))
	return {
		"class": type,
		"parent": str(ClassDB.get_parent_class(type)),
		"instantiable": ClassDB.can_instantiate(type),
		"properties": _named(ClassDB.class_get_property_list(type, own), "type"),
		"methods": _named(ClassDB.class_get_method_list(type, own), ""),
		"signals": _named(ClassDB.class_get_signal_list(type, own), ""),
	}


func _named(entries: Array, type: String) -> Array:
	var shown := []
	for each: Dictionary in entries:
		if type.is_empty():
			shown.append(str(each["name"]))
		elif each["usage"] & PROPERTY_USAGE_STORAGE:
			shown.append({"name": str(each["name"]), "type": type_string(each["type"])})
	return shown


# Compiles a shader; the engine prints the errors.
func op_compile_shader(params: Dictionary) -> Variant:
	var shader: Variant = ResourceLoader.load(params["path"], "", ResourceLoader.CACHE_MODE_IGNORE)
	if not shader is Shader:
		return _fail("invalid", "The engine cannot load %s as a shader." % params["path"])
	var found := []
	for each in shader.get_shader_uniform_list():
		found.append({"name": str(each["name"]), "type": type_string(each["type"])})
	return {"uniforms": found}


func op_has_method(params: Dictionary) -> Variant:
	if ClassDB.class_has_method(params["class"], params["method"]):
		return {"found": true}
	var script: Variant = load(params["script"]) if params["script"] != "" else null
	while script is Script:
		for each in script.get_script_method_list():
			if str(each["name"]) == params["method"]:
				return {"found": true}
		script = script.get_base_script()
	return {"found": false}


# The value that a script gives a property before the scene sets it.
func op_script_default(params: Dictionary) -> Variant:
	var script: Variant = load(params["script"])
	if script is Script:
		for each in script.get_script_property_list():
			if str(each["name"]) == params["property"]:
				return {"found": true, "literal": var_to_str(script.get_property_default_value(params["property"]))}
	return {"found": false}


func op_search_classes(params: Dictionary) -> Variant:
	var wanted := str(params["query"]).to_lower()
	var found := []
	for name in ClassDB.get_class_list():
		if wanted in name.to_lower():
			found.append(name)
	found.sort()
	return {"classes": found}


func op_setting(params: Dictionary) -> Variant:
	if not ProjectSettings.has_setting(params["key"]):
		return _fail("not_found", "There is no setting %s." % params["key"])
	return {"value": var_to_str(ProjectSettings.get_setting(params["key"]))}


func op_version(_params: Dictionary) -> Variant:
	return Engine.get_version_info()
