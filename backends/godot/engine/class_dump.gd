# Prints the engine's classes and project settings with their types and defaults as one line of JSON.
extends SceneTree


func _initialize() -> void:
	var names := Array(ClassDB.get_class_list())
	names.sort()
	var classes := {}
	for name: String in names:
		if ClassDB.class_get_api_type(name) == ClassDB.API_CORE:
			classes[name] = _described(name)
	var version := Engine.get_version_info()
	var found := {
		"version": "%d.%d" % [version["major"], version["minor"]], "classes": classes, "settings": _settings()
	}
	print("@@" + JSON.stringify(found, "", true))
	quit(0)


# Own properties, and inherited ones whose default differs from the parent's.
func _described(type: String) -> Dictionary:
	var parent := str(ClassDB.get_parent_class(type))
	var own := {}
	for each in ClassDB.class_get_property_list(type, true):
		own[str(each["name"])] = true
	var properties := {}
	for each in ClassDB.class_get_property_list(type):
		var name := str(each["name"])
		if each["usage"] & (PROPERTY_USAGE_GROUP | PROPERTY_USAGE_SUBGROUP | PROPERTY_USAGE_CATEGORY):
			continue
		if not each["usage"] & (PROPERTY_USAGE_STORAGE | PROPERTY_USAGE_EDITOR):
			continue
		var value: Variant = _written(ClassDB.class_get_property_default_value(type, name))
		if own.has(name) or value != _written(ClassDB.class_get_property_default_value(parent, name)):
			var kind := type_string(each["type"])
			properties[name] = [str(each["class_name"]) if kind == "Object" else kind, value]
	var found := {"parent": parent, "properties": properties}
	var signals := ClassDB.class_get_signal_list(type, true).map(func(each: Dictionary) -> String: return str(each["name"]))
	if not signals.is_empty():
		found["signals"] = signals
	if not ClassDB.can_instantiate(type):
		found["abstract"] = true
	return found


# Objects are created anew for each question, so only their presence is a fact.
func _written(value: Variant) -> Variant:
	return null if value is Object or value == null else var_to_str(value)


func _settings() -> Dictionary:
	var found := {}
	for each in ProjectSettings.get_property_list():
		var name := str(each["name"])
		if "/" in name and not name.begins_with("input/") and not name.begins_with("autoload/"):
			found[name] = [type_string(each["type"]), _written(ProjectSettings.property_get_revert(name))]
	return found
