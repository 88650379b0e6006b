# Runs a project's scene under control: the game advances only while a request asks for it.
#
# It replaces the main loop by `--script`; the project's files stay untouched and its autoloads are loaded as usual. A
# request is one JSON line on standard input; the answer is one line with a secret mark on standard error.
extends SceneTree

const LINE := 1 << 22
const SIDES := {"left": MOUSE_BUTTON_LEFT, "right": MOUSE_BUTTON_RIGHT, "middle": MOUSE_BUTTON_MIDDLE}

var _mark := ""
var _scene := ""
var _request := {}
var _frames := 0
var _ran := 0
var _strip := []
var _held := {}
var _started := false
var _failure := {}
var _values: RefCounted


func _initialize() -> void:
	_values = load(get_script().resource_path.get_base_dir().path_join("../addon/values.gd").simplify_path()).new()
	_mark = OS.read_string_from_stdin(LINE).strip_edges()
	_scene = OS.read_string_from_stdin(LINE).strip_edges()
	var code := change_scene_to_file(_scene)
	if code != OK:
		printerr(_mark + JSON.stringify({"ok": false, "kind": "invalid", "message": "The engine cannot run %s." % _scene}))
		quit(1)


func _process(_delta: float) -> bool:
	if not _started:
		# The scene is added at the end of the first frame.
		_started = current_scene != null
		if _started:
			printerr(_mark + JSON.stringify({"ok": true, "value": {"scene": _scene}}))
		return false
	if _frames > 0:
		_frames -= 1
		_ran += 1
		if not _finished():
			return false
		_answer(_run_result())
	while _frames == 0:
		var line := OS.read_string_from_stdin(LINE)
		if line.is_empty():
			return true
		_failure = {}
		var request: Variant = JSON.parse_string(line)
		_request = request if request is Dictionary else {}
		var method := "do_" + str(_request.get("do"))
		var value: Variant = call(method, _request) if has_method(method) else _fail("unsupported", "There is no such request.")
		if _frames == 0:
			_answer(value)
	return false


func _answer(value: Variant) -> void:
	printerr(_mark + JSON.stringify(_failure if not _failure.is_empty() else {"ok": true, "value": value}))


func _fail(kind: String, message: String, details := {}) -> Variant:
	if _failure.is_empty():
		_failure = {"ok": false, "kind": kind, "message": message, "details": details}
	return null


# ---- running ----


# frames: how many at the most; until: a condition that ends the run; strip: every how many frames a picture is taken.
func do_run(request: Dictionary) -> Variant:
	_frames = maxi(int(request.get("frames", 1)), 1)
	_ran = 0
	_strip = []
	return null


func _finished() -> bool:
	for name: String in _held.keys():
		_held[name] -= 1
		if _held[name] <= 0:
			_held.erase(name)
			Input.action_release(name)
	var every := int(_request.get("strip", 0))
	if every > 0 and _ran % every == 0 and _strip.size() < 16:
		_strip.append(_picture(int(_request.get("maxSize", 320))))
	if _request.has("until") and _holds(_request["until"]):
		_frames = 0
	return _frames == 0


func _run_result() -> Dictionary:
	var result := {"frames": _ran, "seconds": _ran / 60.0}
	if _request.has("until"):
		result["met"] = _holds(_request["until"])
	if not _strip.is_empty():
		result["pictures"] = _strip
	return result


func _holds(condition: Dictionary) -> bool:
	var node := _find(str(condition.get("nodePath", ".")))
	if condition.has("exists"):
		return (node != null) == bool(condition["exists"])
	if node == null:
		return false
	var found: Variant = node.get_indexed(NodePath(str(condition.get("property", ""))))
	var wanted: Variant = condition.get("value")
	match str(condition.get("is", "equal")):
		"greater":
			return (found is float or found is int) and found > wanted
		"less":
			return (found is float or found is int) and found < wanted
		"not_equal":
			return not _equal(found, wanted)
	return _equal(found, wanted)


func _equal(found: Variant, wanted: Variant) -> bool:
	if (found is int or found is float) and (wanted is int or wanted is float):
		return is_equal_approx(found, wanted)
	return str(found) == str(wanted) if typeof(found) != typeof(wanted) else found == wanted


# ---- input ----


func do_input(request: Dictionary) -> Variant:
	for event: Dictionary in request["events"]:
		_send(event)
		if not _failure.is_empty():
			return null
	Input.flush_buffered_events()
	return {"sent": request["events"].size()}


func _send(event: Dictionary) -> void:
	var pressed := bool(event.get("pressed", true))
	match str(event["type"]):
		"action":
			var name := str(event["name"])
			if not InputMap.has_action(name):
				_fail("not_found", "The project has no input action %s." % name, {"actions": InputMap.get_actions().map(str)})
				return
			var action := InputEventAction.new()
			action.action = name
			action.pressed = pressed
			action.strength = float(event.get("strength", 1.0 if pressed else 0.0))
			Input.parse_input_event(action)
			if pressed and event.has("frames"):
				_held[name] = int(event["frames"])
		"key":
			var key := InputEventKey.new()
			key.keycode = OS.find_keycode_from_string(str(event["key"]))
			if key.keycode == KEY_NONE:
				_fail("invalid", "There is no key %s." % event["key"])
				return
			key.physical_keycode = key.keycode
			key.pressed = pressed
			Input.parse_input_event(key)
		"mouse_button":
			var button := InputEventMouseButton.new()
			button.button_index = SIDES.get(str(event.get("button", "left")), MOUSE_BUTTON_LEFT)
			button.position = Vector2(event.get("x", 0.0), event.get("y", 0.0))
			button.global_position = button.position
			button.pressed = pressed
			Input.parse_input_event(button)
		"mouse_motion":
			var motion := InputEventMouseMotion.new()
			motion.position = Vector2(event.get("x", 0.0), event.get("y", 0.0))
			motion.global_position = motion.position
			Input.parse_input_event(motion)
		"joypad_button":
			var joy := InputEventJoypadButton.new()
			joy.button_index = int(event.get("button", 0)) as JoyButton
			joy.pressed = pressed
			Input.parse_input_event(joy)
		"joypad_axis":
			var axis := InputEventJoypadMotion.new()
			axis.axis = int(event.get("axis", 0)) as JoyAxis
			axis.axis_value = float(event.get("value", 0.0))
			Input.parse_input_event(axis)
		_:
			_fail("invalid", "There is no input of type %s." % event["type"])


# ---- looking and changing ----


func _find(path: String) -> Node:
	if path.begins_with("/root"):
		return root.get_node_or_null(NodePath(path))
	return current_scene.get_node_or_null(NodePath(path)) if current_scene != null else null


func _node(request: Dictionary) -> Node:
	var node := _find(str(request.get("nodePath", ".")))
	if node == null:
		_fail("not_found", "The running game has no node %s." % request.get("nodePath", "."))
	return node


func do_tree(request: Dictionary) -> Variant:
	var node := _node(request)
	if node == null:
		return null
	var left := [int(request.get("maxNodes", 200))]
	return {"tree": _shown(node, int(request.get("maxDepth", 32)), left), "nodeCount": get_node_count()}


func _shown(node: Node, depth: int, left: Array) -> Dictionary:
	left[0] -= 1
	var shown := {"name": str(node.name), "type": node.get_class()}
	if node.get_child_count() > 0:
		var children := []
		for child in node.get_children():
			if depth > 1 and left[0] > 0:
				children.append(_shown(child, depth - 1, left))
		shown["children"] = children
		if children.size() < node.get_child_count():
			shown["childCount"] = node.get_child_count()
	return shown


func do_get(request: Dictionary) -> Variant:
	var node := _node(request)
	if node == null:
		return null
	var name := str(request["property"])
	if not name.get_slice(":", 0) in node:
		return _fail("not_found", "%s has no property %s." % [node.name, name])
	return {"literal": _written(node.get_indexed(NodePath(name)))}


func do_set(request: Dictionary) -> Variant:
	var node := _node(request)
	if node == null:
		return null
	var name := str(request["property"])
	if not name in node:
		return _fail("not_found", "%s has no property %s." % [node.name, name])
	var value: Variant = _values.typed(request.get("value"), {"type": typeof(node.get(name)), "name": name})
	if not _values.failure.is_empty():
		return _fail("invalid", _values.failure["message"])
	node.set(name, value)
	return {"literal": _written(node.get(name))}


func do_call(request: Dictionary) -> Variant:
	var node := _node(request)
	if node == null:
		return null
	if not node.has_method(str(request["method"])):
		return _fail("not_found", "%s has no method %s." % [node.name, request["method"]])
	return {"literal": _written(node.callv(str(request["method"]), request.get("args", [])))}


func do_evaluate(request: Dictionary) -> Variant:
	var node := _node(request)
	if node == null:
		return null
	var expression := Expression.new()
	if expression.parse(str(request["expression"])) != OK:
		return _fail("invalid", "The expression cannot be read: %s" % expression.get_error_text())
	var value: Variant = expression.execute([], node, false)
	if expression.has_execute_failed():
		return _fail("invalid", "The expression failed: %s" % expression.get_error_text())
	return {"literal": _written(value)}


func _written(value: Variant) -> String:
	return "\"%s\"" % value if value is Object else var_to_str(value)


func do_performance(_asked: Dictionary) -> Variant:
	return {
		"fps": Performance.get_monitor(Performance.TIME_FPS),
		"processSeconds": Performance.get_monitor(Performance.TIME_PROCESS),
		"physicsSeconds": Performance.get_monitor(Performance.TIME_PHYSICS_PROCESS),
		"nodes": Performance.get_monitor(Performance.OBJECT_NODE_COUNT),
		"orphanNodes": Performance.get_monitor(Performance.OBJECT_ORPHAN_NODE_COUNT),
		"staticMemory": Performance.get_monitor(Performance.MEMORY_STATIC),
		"drawCalls": Performance.get_monitor(Performance.RENDER_TOTAL_DRAW_CALLS_IN_FRAME),
	}


func do_picture(request: Dictionary) -> Variant:
	RenderingServer.force_draw(false)
	return {"picture": _picture(int(request.get("maxSize", 1280)))}


func _picture(bound: int) -> String:
	var image := root.get_texture().get_image()
	if image == null or image.is_empty():
		return ""
	var scale := minf(1.0, bound / float(maxi(image.get_width(), image.get_height())))
	if scale < 1.0:
		image.resize(maxi(int(image.get_width() * scale), 1), maxi(int(image.get_height() * scale), 1), Image.INTERPOLATE_LANCZOS)
	return Marshalls.raw_to_base64(image.save_png_to_buffer())
