# Changes the properties of one node or resource through the engine and returns those that differ afterwards.
#
# A node is a fresh object of its class with the values that the scene files store: no scene is instantiated and no
# script is attached, so nothing of the project runs. The operations are in the other files of this folder.
extends RefCounted

const SCRATCH := "user://gatehouse_saving.tres"

var _host: SceneTree
var _values: RefCounted
var _kits := {}

# What the current operation changes besides properties of the object: name -> value.
var extra := {}
# Properties that the caller named.
var touched := {}
# Stored values of properties that a script declares.
var _script_values := {}
# The script of a class that the project's own code defines.
var _class_script: Variant = null


func _init(host: SceneTree, values: RefCounted) -> void:
	_host = host
	_values = values


func fail(kind: String, message: String, details := {}) -> Variant:
	return _host._fail(kind, message, details)


func failed() -> bool:
	return not _host._failure.is_empty()


# params: class, script, scene (the edited one), chain [[scene, node path], …] or resource; operation "kit.method" and its args.
func run(params: Dictionary) -> Variant:
	extra = {}
	touched = {}
	_class_script = null
	_script_values = {}
	var object: Object = _object(params)
	if object == null:
		return null
	var script: Variant = load(params["script"]) if str(params.get("script", "")) != "" else _class_script
	var before := _fingerprints(object)
	var done: Variant = _perform(object, script, str(params["operation"]), params.get("args", {}))
	var answer: Variant = null
	if not failed():
		answer = _whole(object, params) if params.has("resource") else _changes(object, before, params)
	if answer != null:
		answer["class"] = object.get_class()
		answer["result"] = done if done is Dictionary else {}
		answer["script"] = _class_script.resource_path if _class_script is Script else ""
	if object is Node:
		object.free()
	return answer


func _object(params: Dictionary) -> Object:
	if params.has("resource"):
		var path := str(params["resource"])
		if path == "" or not ResourceLoader.exists(path):
			return _fresh(str(params["class"]), "Resource")
		var loaded: Variant = ResourceLoader.load(path, "", ResourceLoader.CACHE_MODE_IGNORE)
		if not loaded is Resource:
			return fail("invalid", "The engine cannot load %s." % path)
		var wanted := str(params.get("class", ""))
		if wanted != "" and not loaded.is_class(wanted):
			return fail("invalid", "%s is a %s, not a %s." % [path, loaded.get_class(), wanted])
		return loaded
	var object := _fresh(str(params["class"]), "Node")
	if object == null:
		return null
	var chain: Array = params.get("chain", [])
	# From the scene that defines the node to the one that is edited.
	for number in range(chain.size() - 1, -1, -1):
		var state: SceneState = _host._state(chain[number][0])
		var index: int = _host._index(state, chain[number][1]) if state != null else -1
		if index < 0:
			object.free()
			return null
		var stored: Dictionary = _host._stored(state, index)
		for name: String in stored:
			# A script that is attached would run.
			if name == "script" or (not name in object and not name.begins_with("metadata/")):
				_script_values[name] = stored[name]
			if name == "script":
				continue
			# A resource inside another scene is copied: the edited scene gets its own.
			object.set(name, stored[name] if chain[number][0] == params["scene"] else _copied(stored[name]))
	return object


func _fresh(type: String, base: String) -> Object:
	var resolved: Variant = _host._resolve(type, base)
	if resolved == null:
		return null
	_class_script = resolved["script"]
	return ClassDB.instantiate(resolved["class"])


func _copied(value: Variant) -> Variant:
	if not value is Resource or not is_inside(value) or value is Script:
		return value
	return value.duplicate(true)


# Gives new resources random ids. The saver derives them from the path, so two saved values would have the same id.
func _name_resources(value: Variant) -> void:
	if value is Resource and is_inside(value):
		if value.resource_scene_unique_id.is_empty():
			value.resource_scene_unique_id = "%s_%s" % [value.get_class(), ("%08x" % randi()).left(6)]
		for each in value.get_property_list():
			if each["usage"] & PROPERTY_USAGE_STORAGE and each["type"] in [TYPE_OBJECT, TYPE_ARRAY, TYPE_DICTIONARY]:
				_name_resources(value.get(each["name"]))
	elif value is Array:
		value.map(_name_resources)
	elif value is Dictionary:
		value.values().map(_name_resources)


# Whether a resource is saved inside the file that uses it.
func is_inside(value: Resource) -> bool:
	return value.resource_path.is_empty() or "::" in value.resource_path


func _perform(object: Object, script: Variant, operation: String, args: Dictionary) -> Variant:
	if operation == "set":
		for name: String in args.get("properties", {}):
			set_value(object, script, name, args["properties"][name])
			if failed():
				return null
		return {}
	if operation == "copy":
		# All that the scenes store, for a node that is written anew.
		for name in _fingerprints(object):
			touched[name] = true
		extra = _script_values.duplicate()
		return {}
	var kit := operation.get_slice(".", 0)
	if not _kits.has(kit):
		var folder: String = get_script().resource_path.get_base_dir()
		_kits[kit] = load(folder.path_join(kit + ".gd")).new(self)
	return _kits[kit].call(operation.get_slice(".", 1), object, args)


# ---- setting values ----


# Sets a property by name; `shape:radius` sets a property of the resource that the first one holds.
func set_value(object: Object, script: Variant, name: String, given: Variant) -> void:
	var names := name.split(":", false)
	if names.size() > 1 and not name.begins_with("metadata/"):
		_set_nested(object, names, given)
		return
	touched[name] = true
	var known: Variant = _values.property(object, script, name)
	if known == null:
		_set_dynamic(object, name, given)
		return
	_values.failure = {}
	var value: Variant = _values.typed(given, known)
	if not _values.failure.is_empty():
		fail(_values.failure["kind"], _values.failure["message"], _values.failure["details"])
		return
	if not known.get("native", true):
		extra[name] = value
		return
	if name == "bus":
		_reload_buses()
	var before := _fingerprints(object)
	object.set(name, value)
	if value is Object or _values.same(object.get(name), value) or fingerprint(object.get(name)) == fingerprint(value):
		return
	# A property that is derived from stored ones may round the value.
	if known["usage"] & PROPERTY_USAGE_STORAGE or _fingerprints(object) == before:
		fail("invalid", "%s does not take this value." % name, {"property": name})


# Players take only buses that the engine has, and the layout may have changed since it started.
func _reload_buses() -> void:
	var path := str(ProjectSettings.get_setting("audio/buses/default_bus_layout"))
	var layout: Variant = ResourceLoader.load(path, "", ResourceLoader.CACHE_MODE_IGNORE) if ResourceLoader.exists(path) else null
	if layout is AudioBusLayout:
		AudioServer.set_bus_layout(layout)


func _set_nested(object: Object, names: PackedStringArray, given: Variant) -> void:
	var holder := object
	for number in names.size() - 1:
		var next: Variant = holder.get(names[number])
		if not next is Resource:
			fail("not_found", "%s holds no resource." % ":".join(names.slice(0, number + 1)), {"property": ":".join(names)})
			return
		if not is_inside(next):
			fail(
				"invalid",
				"%s is the file %s: change that file, or set the property to a resource of its own."
				% [":".join(names.slice(0, number + 1)), next.resource_path],
				{"property": ":".join(names), "file": next.resource_path}
			)
			return
		holder = next
	set_value(holder, null, names[names.size() - 1], given)
	touched = {}
	touched[names[0]] = true


# Sets a property that the object lists only once it is set: `libraries/…`, `tracks/0/type`, `shader_parameter/…`.
func _set_dynamic(object: Object, name: String, given: Variant) -> void:
	_values.failure = {}
	var value: Variant = _values.typed(given, {"type": TYPE_NIL, "name": name})
	if value == null and given is String and given.begins_with("res://"):
		value = _values.typed(given, {"type": TYPE_OBJECT, "name": name})
	elif given is String and given.begins_with("res://") and ResourceLoader.exists(given):
		value = _values.typed(given, {"type": TYPE_OBJECT, "name": name})
	if not _values.failure.is_empty():
		fail(_values.failure["kind"], _values.failure["message"], _values.failure["details"])
		return
	object.set(name, value)
	var stored: Variant = object.get(name)
	if not _values.same(stored, value):
		fail("invalid", "%s has no property %s." % [object.get_class(), name], {"property": name})


# ---- the answer ----


func _fingerprints(object: Object) -> Dictionary:
	var found := {}
	for each in object.get_property_list():
		if each["usage"] & PROPERTY_USAGE_STORAGE and str(each["name"]) != "script":
			found[str(each["name"])] = fingerprint(object.get(each["name"]))
	return found


# Text that is equal for values that the engine regards as equal, also for resources inside a file.
func fingerprint(value: Variant, depth := 0) -> String:
	if value is Resource:
		if not is_inside(value):
			return value.resource_path
		if depth > 16:
			return value.get_class()
		var parts := [value.get_class()]
		for each in value.get_property_list():
			var name := str(each["name"])
			if each["usage"] & PROPERTY_USAGE_STORAGE and not name in ["script", "resource_local_to_scene", "resource_name", "resource_scene_unique_id"]:
				parts.append(name + "=" + fingerprint(value.get(name), depth + 1))
		return "{%s}" % ";".join(parts)
	if value is Array:
		return "[%s]" % ",".join(value.map(func(each: Variant) -> String: return fingerprint(each, depth + 1)))
	if value is Dictionary:
		var entries := []
		for key: Variant in value:
			entries.append(fingerprint(key, depth + 1) + ":" + fingerprint(value[key], depth + 1))
		return "<%s>" % ",".join(entries)
	if value is Object:
		return value.get_class()
	return var_to_str(value)


func digest(value: Variant) -> String:
	var text := fingerprint(value)
	return text if text.length() < 64 else text.sha256_text()


func _changes(object: Object, before: Dictionary, params: Dictionary) -> Variant:
	var changed := {}
	var after := _fingerprints(object)
	for name: String in after:
		if name.begins_with("metadata/_edit"):
			continue
		if after[name] != before.get(name, "") or (touched.has(name) and not extra.has(name)):
			changed[name] = object.get(name)
	for name: String in touched:
		if name.begins_with("metadata/") and not changed.has(name):
			changed[name] = object.get(name)
	changed.merge(extra, true)
	var removed := []
	for name: String in before:
		if not after.has(name):
			removed.append(name)
	var saved := Resource.new()
	var names := {}
	var digests := {}
	var defaults := []
	for name: String in changed:
		var value: Variant = changed[name]
		digests[name] = digest(value)
		if value == null:
			names[name] = "null"
			continue
		var key := "metadata/p%d" % names.size()
		names[name] = key
		saved.set(key, value)
		if not extra.has(name) and digest(ClassDB.class_get_property_default_value(object.get_class(), name)) == digests[name]:
			defaults.append(name)
	var text: Variant = _saved_text(saved)
	if text == null:
		return null
	return {"text": text, "names": names, "digests": digests, "defaults": defaults, "removed": removed}


func _whole(object: Object, params: Dictionary) -> Variant:
	var text: Variant = _saved_text(object)
	return null if text == null else {"text": text}


func _saved_text(resource: Resource) -> Variant:
	_name_resources(resource)
	var code := ResourceSaver.save(resource, SCRATCH)
	var text := FileAccess.get_file_as_string(SCRATCH) if code == OK else ""
	DirAccess.remove_absolute(SCRATCH)
	if text.is_empty() or not text.ends_with("\n"):
		return fail("internal", "The engine could not save: it may be that there is no room left on the disk.")
	return text
