# Converts JSON values to property values: by the property's type, resources by path or class.
@tool
extends RefCounted

const PARTS := {
	TYPE_VECTOR2: ["x", "y"], TYPE_VECTOR2I: ["x", "y"],
	TYPE_VECTOR3: ["x", "y", "z"], TYPE_VECTOR3I: ["x", "y", "z"],
	TYPE_VECTOR4: ["x", "y", "z", "w"], TYPE_VECTOR4I: ["x", "y", "z", "w"],
	TYPE_QUATERNION: ["x", "y", "z", "w"], TYPE_COLOR: ["r", "g", "b", "a"],
	TYPE_RECT2: ["x", "y", "width", "height"], TYPE_RECT2I: ["x", "y", "width", "height"],
}

var failure := {}
# Why the last value was rejected: kind, message, details.


# Returns the value for a property of the object; null and a `failure` if the property rejects it.
func settled(object: Object, script: Variant, name: String, given: Variant) -> Variant:
	failure = {}
	var known: Variant = property(object, script, name)
	if known == null:
		return _fail("invalid", "%s has no property %s." % [object.get_class(), name], {"property": name})
	return typed(given, known)


func _fail(kind: String, message: String, details := {}) -> Variant:
	if failure.is_empty():
		failure = {"kind": kind, "message": message, "details": details}
	return null


# Whether the stored value equals the value that was set.
func same(stored: Variant, given: Variant) -> bool:
	if typeof(stored) != typeof(given):
		return false
	if stored is float:
		return is_equal_approx(stored, given)
	if typeof(stored) in [TYPE_VECTOR2, TYPE_VECTOR3, TYPE_COLOR]:
		return stored.is_equal_approx(given)
	return stored == given or var_to_str(stored) == var_to_str(given)


func property(object: Object, script: Variant, name: String) -> Variant:
	if name.begins_with("metadata/"):
		return {"type": TYPE_NIL, "class_name": "", "hint_string": "", "native": false}
	if name == "script":
		return {"type": TYPE_OBJECT, "class_name": "Script", "hint_string": "Script", "native": false}
	for each in object.get_property_list():
		if str(each["name"]) == name and not each["usage"] & PROPERTY_USAGE_READ_ONLY:
			each["native"] = true
			return each
	if script is Script:
		for each in script.get_script_property_list():
			if str(each["name"]) == name:
				each["native"] = false
				return each
	return null


func typed(given: Variant, known: Dictionary) -> Variant:
	var type: int = known["type"]
	if given is Dictionary and given.has("$literal"):
		given = str_to_var(str(given["$literal"]))
		# A literal has its types already.
		if type == TYPE_NIL or typeof(given) == type:
			return given
	elif given is Dictionary and given.has("$type"):
		given = _built(given)
	elif given is Dictionary and given.has("$resource"):
		return _resource(given, known)
	elif given is String and type == TYPE_OBJECT:
		return _resource({"$resource": given}, known)
	if not failure.is_empty():
		return null
	var value: Variant = _converted(given, type)
	if type != TYPE_NIL and typeof(value) != type and not (value == null and type == TYPE_OBJECT):
		return _fail(
			"invalid",
			"%s is a %s." % [known.get("name", "The property"), type_string(type)],
			{"property": str(known.get("name", "")), "type": type_string(type)}
		)
	return value


func _converted(given: Variant, type: int) -> Variant:
	if typeof(given) == type:
		return _whole(given) if given is Array or given is Dictionary else given
	match type:
		TYPE_NIL:
			return _whole(given)
		TYPE_INT:
			return int(given) if given is float and given == floorf(given) else given
		TYPE_STRING_NAME:
			return StringName(given) if given is String else given
		TYPE_NODE_PATH:
			return NodePath(given) if given is String else given
		TYPE_COLOR:
			if given is String and (Color.html_is_valid(given) or Color.from_string(given, Color.TRANSPARENT) != Color.TRANSPARENT):
				return Color.from_string(given, Color.TRANSPARENT)
	if given is String:
		var parsed: Variant = str_to_var(given)
		return parsed if typeof(parsed) == type else given
	if given is Dictionary and type in PARTS:
		return _built(given.merged({"$type": type_string(type)}))
	if given is Array and type in PARTS and given.size() == PARTS[type].size():
		var parts := {"$type": type_string(type)}
		for index in given.size():
			parts[PARTS[type][index]] = given[index]
		return _built(parts)
	if given is Array:
		return type_convert(_whole(given), type) if type >= TYPE_PACKED_BYTE_ARRAY else given
	return given


# JSON has no integers: without a type, a number without a fraction becomes an integer.
func _whole(given: Variant) -> Variant:
	if given is float and given == floorf(given) and absf(given) < 9e15:
		return int(given)
	if given is Array:
		return given.map(_whole)
	if given is Dictionary and given.has("$literal"):
		return str_to_var(str(given["$literal"]))
	if given is Dictionary and given.has("$resource"):
		return _resource(given, {})
	if given is Dictionary:
		var whole := {}
		for key: Variant in given:
			whole[key] = _whole(given[key])
		return whole
	return given


func _built(given: Dictionary) -> Variant:
	var type := str(given["$type"])
	if type == "NodePath":
		return NodePath(str(given.get("path", "")))
	if type == "StringName":
		return StringName(str(given.get("name", "")))
	for known: int in PARTS:
		if type_string(known) != type:
			continue
		var numbers := []
		for part: String in PARTS[known]:
			var number: Variant = given.get(part, 1.0 if part == "a" else 0.0)
			if not (number is float or number is int):
				return _fail("invalid", "A %s has numbers only." % type)
			numbers.append(number)
		return str_to_var("%s(%s)" % [type, ", ".join(numbers.map(func(number: Variant) -> String: return var_to_str(number)))])
	return _fail("invalid", "There is no type %s here." % type)


func _resource(given: Dictionary, known: Dictionary) -> Variant:
	var named := str(given["$resource"])
	if ClassDB.class_exists(named) and ClassDB.is_parent_class(named, "Resource") and ClassDB.can_instantiate(named):
		var made: Resource = ClassDB.instantiate(named)
		for name: String in given.get("props", {}):
			var inner: Variant = property(made, null, name)
			if inner == null:
				return _fail("invalid", "%s has no property %s." % [named, name], {"property": name})
			made.set(name, typed(given["props"][name], inner))
		return _fitting(made, known)
	if named.begins_with("uid://") or not ResourceLoader.exists(named):
		return _fail("not_found", "There is no resource %s the engine can load." % named, {"property": str(known.get("name", ""))})
	var loaded: Variant = ResourceLoader.load(named, "", ResourceLoader.CACHE_MODE_IGNORE)
	if not loaded is Resource:
		return _fail("invalid", "The engine cannot load %s." % named)
	loaded.take_over_path(named)
	return _fitting(loaded, known)


func _fitting(resource: Resource, known: Dictionary) -> Variant:
	var wanted := str(known.get("hint_string", ""))
	if wanted.is_empty():
		wanted = str(known.get("class_name", ""))
	for each in wanted.split(",", false):
		if resource.is_class(each) or not ClassDB.class_exists(each):
			return resource
	if wanted.is_empty():
		return resource
	return _fail("invalid", "%s takes a %s." % [known.get("name", "The property"), wanted])
