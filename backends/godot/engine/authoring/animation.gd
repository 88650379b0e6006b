# Animations, tracks and keys of an AnimationPlayer; state machines and blend spaces of an AnimationTree.
extends RefCounted

const TRACKS := {
	"value": Animation.TYPE_VALUE, "position_2d": Animation.TYPE_VALUE, "rotation_2d": Animation.TYPE_VALUE,
	"scale_2d": Animation.TYPE_VALUE, "position_3d": Animation.TYPE_POSITION_3D,
	"rotation_3d": Animation.TYPE_ROTATION_3D, "scale_3d": Animation.TYPE_SCALE_3D, "method": Animation.TYPE_METHOD,
	"bezier": Animation.TYPE_BEZIER, "audio": Animation.TYPE_AUDIO, "animation": Animation.TYPE_ANIMATION,
}
const PROPERTIES := {"position_2d": "position", "rotation_2d": "rotation", "scale_2d": "scale"}
const SWITCHES := {
	"immediate": AnimationNodeStateMachineTransition.SWITCH_MODE_IMMEDIATE,
	"sync": AnimationNodeStateMachineTransition.SWITCH_MODE_SYNC,
	"at_end": AnimationNodeStateMachineTransition.SWITCH_MODE_AT_END,
}

var _core: RefCounted


func _init(core: RefCounted) -> void:
	_core = core


# ---- players ----


func add_animation(player: AnimationPlayer, args: Dictionary) -> Variant:
	var names := _split(args["animationName"])
	var library := _library(player, names[0], true)
	if library == null:
		return null
	if library.has_animation(names[1]) and not args.get("replace", false):
		return _core.fail("invalid", "The animation %s already exists." % args["animationName"])
	var animation := Animation.new()
	animation.length = args.get("length", 1.0)
	animation.loop_mode = Animation.LOOP_LINEAR if args.get("loop", false) else Animation.LOOP_NONE
	if library.has_animation(names[1]):
		library.remove_animation(names[1])
	library.add_animation(names[1], animation)
	_touch(player, names[0])
	return {"animation": args["animationName"], "length": animation.length}


func add_track(player: AnimationPlayer, args: Dictionary) -> Variant:
	var animation := _animation(player, args["animationName"])
	if animation == null:
		return null
	var kind := str(args["trackType"])
	var path := str(args["nodePath"])
	var property := str(args.get("property", PROPERTIES.get(kind, "")))
	if kind in ["value", "bezier"] and property.is_empty():
		return _core.fail("invalid", "A %s track needs property." % kind)
	if not property.is_empty() and TRACKS[kind] in [Animation.TYPE_VALUE, Animation.TYPE_BEZIER]:
		path += ":" + property
	var index := animation.add_track(TRACKS[kind])
	animation.track_set_path(index, path)
	return {"trackIndex": index, "trackPath": path, "tracks": animation.get_track_count()}


func set_key(player: AnimationPlayer, args: Dictionary) -> Variant:
	var animation := _animation(player, args["animationName"])
	if animation == null:
		return null
	var track := int(args["trackIndex"])
	if track >= animation.get_track_count():
		return _core.fail("not_found", "The animation has %d tracks." % animation.get_track_count())
	var time := float(args["time"])
	var value: Variant = _key_value(animation, track, args)
	if _core.failed():
		return null
	match animation.track_get_type(track):
		Animation.TYPE_BEZIER:
			animation.bezier_track_insert_key(track, time, value)
		Animation.TYPE_AUDIO:
			animation.audio_track_insert_key(track, time, value)
		Animation.TYPE_ANIMATION:
			animation.animation_track_insert_key(track, time, value)
		_:
			animation.track_insert_key(track, time, value, float(args.get("easing", args.get("transition", 1.0))))
	if time > animation.length:
		animation.length = time
	return {"keys": animation.track_get_key_count(track), "length": animation.length}


# A key has the type of the keys before it, or of the property in the class that the caller names.
func _key_value(animation: Animation, track: int, args: Dictionary) -> Variant:
	var given: Variant = args.get("value")
	match animation.track_get_type(track):
		Animation.TYPE_POSITION_3D, Animation.TYPE_SCALE_3D:
			return _typed(given, TYPE_VECTOR3)
		Animation.TYPE_ROTATION_3D:
			return _typed(given, TYPE_QUATERNION)
		Animation.TYPE_BEZIER:
			return _typed(given, TYPE_FLOAT)
		Animation.TYPE_METHOD:
			var method: Dictionary = given if given is Dictionary else {"method": given}
			return {"method": StringName(str(method.get("method", ""))), "args": method.get("args", [])}
		Animation.TYPE_AUDIO:
			return _core._values.typed(given, {"type": TYPE_OBJECT, "name": "value"})
		Animation.TYPE_ANIMATION:
			return StringName(str(given))
	var type := int(args.get("valueType", TYPE_NIL))
	if animation.track_get_key_count(track) > 0:
		type = typeof(animation.track_get_key_value(track, 0))
	return _typed(given, type)


func _typed(given: Variant, type: int) -> Variant:
	_core._values.failure = {}
	var value: Variant = _core._values.typed(given, {"type": type, "name": "value"})
	if not _core._values.failure.is_empty():
		_core.fail("invalid", _core._values.failure["message"])
	return value


# One animation that moves a property from one value to another.
func create_simple(player: AnimationPlayer, args: Dictionary) -> Variant:
	var made: Variant = add_animation(player, {
		"animationName": args["animation"], "length": args.get("duration", 1.0), "replace": args.get("replaceExisting", false),
	})
	if made == null:
		return null
	var track: Variant = add_track(player, {
		"animationName": args["animation"], "trackType": "value", "nodePath": args["nodePath"], "property": args["property"],
	})
	var times := [0.0, float(args.get("duration", 1.0))]
	var values := [args.get("startValue", args["endValue"]), args["endValue"]]
	for index in 2:
		set_key(player, {
			"animationName": args["animation"], "trackIndex": track["trackIndex"], "time": times[index],
			"value": values[index], "valueType": args.get("valueType", TYPE_NIL),
		})
	return made


func list(player: AnimationPlayer, _args: Dictionary) -> Variant:
	var found := []
	for name in player.get_animation_list():
		var animation := player.get_animation(name)
		found.append({"name": str(name), "length": animation.length, "tracks": animation.get_track_count(), "loop": animation.loop_mode != 0})
	return {"animations": found}


func _split(name: String) -> PackedStringArray:
	return PackedStringArray([name.get_slice("/", 0), name.get_slice("/", 1)]) if "/" in name else PackedStringArray(["", name])


func _library(player: AnimationPlayer, name: String, create: bool) -> AnimationLibrary:
	if not player.has_animation_library(name):
		if not create:
			return _core.fail("not_found", "The player has no library %s." % name)
		player.add_animation_library(name, AnimationLibrary.new())
	var library := player.get_animation_library(name)
	if not _core.is_inside(library):
		return _core.fail("invalid", "The library %s is the file %s." % [name, library.resource_path])
	return library


func _touch(player: AnimationPlayer, library: String) -> void:
	_core.touched["libraries/" + library] = true


func _animation(player: AnimationPlayer, name: String) -> Animation:
	var names := _split(name)
	var library := _library(player, names[0], false)
	if library == null:
		return null
	if not library.has_animation(names[1]):
		return _core.fail("not_found", "The player has no animation %s." % name, {"animations": Array(library.get_animation_list())})
	_touch(player, names[0])
	return library.get_animation(names[1])


# ---- trees ----


func setup_tree(tree: AnimationTree, args: Dictionary) -> Variant:
	tree.tree_root = AnimationNodeStateMachine.new() if args.get("root", "state_machine") == "state_machine" else AnimationNodeBlendTree.new()
	if args.has("animPlayerPath"):
		tree.anim_player = NodePath(str(args["animPlayerPath"]))
	if args.has("rootMotionTrack"):
		tree.root_motion_track = NodePath(str(args["rootMotionTrack"]))
	match str(args.get("processCallback", "idle")):
		"physics":
			tree.callback_mode_process = AnimationMixer.ANIMATION_CALLBACK_MODE_PROCESS_PHYSICS
		"manual":
			tree.callback_mode_process = AnimationMixer.ANIMATION_CALLBACK_MODE_PROCESS_MANUAL
	return {}


func state_machine(tree: AnimationTree, args: Dictionary) -> Variant:
	var machine := AnimationNodeStateMachine.new()
	var x := 200.0
	for state: Dictionary in args["states"]:
		var node := AnimationNodeAnimation.new()
		node.animation = StringName(str(state.get("animation", state["name"])))
		machine.add_node(state["name"], node, Vector2(x, 100))
		x += 200.0
	for each: Dictionary in args.get("transitions", []):
		for end: String in ["from", "to"]:
			if not machine.has_node(each[end]):
				return _core.fail("not_found", "There is no state %s." % each[end])
		var transition := AnimationNodeStateMachineTransition.new()
		transition.xfade_time = each.get("xfadeTime", 0.0)
		transition.switch_mode = SWITCHES[each.get("switchMode", "immediate")]
		if each.get("autoAdvance", false):
			transition.advance_mode = AnimationNodeStateMachineTransition.ADVANCE_MODE_AUTO
		if each.has("advanceCondition"):
			transition.advance_condition = StringName(str(each["advanceCondition"]))
			transition.advance_mode = AnimationNodeStateMachineTransition.ADVANCE_MODE_AUTO
		machine.add_transition(each["from"], each["to"], transition)
	if args.has("startState"):
		if not machine.has_node(args["startState"]):
			return _core.fail("not_found", "There is no state %s." % args["startState"])
		var start := AnimationNodeStateMachineTransition.new()
		start.advance_mode = AnimationNodeStateMachineTransition.ADVANCE_MODE_AUTO
		machine.add_transition("Start", args["startState"], start)
	tree.tree_root = machine
	_core.touched["tree_root"] = true
	return {"states": args["states"].size(), "transitions": machine.get_transition_count()}


func blend_space(tree: AnimationTree, args: Dictionary) -> Variant:
	var flat: bool = args["type"] == "1d"
	var space: AnimationRootNode = AnimationNodeBlendSpace1D.new() if flat else AnimationNodeBlendSpace2D.new()
	if flat:
		space.min_space = args.get("minSpace", -1.0)
		space.max_space = args.get("maxSpace", 1.0)
	else:
		space.min_space = Vector2(args.get("minSpace", -1.0), args.get("minSpaceY", -1.0))
		space.max_space = Vector2(args.get("maxSpace", 1.0), args.get("maxSpaceY", 1.0))
	space.blend_mode = ["interpolated", "discrete", "carry"].find(args.get("blendMode", "interpolated"))
	space.sync = args.get("sync", false)
	for point: Dictionary in args["points"]:
		var node := AnimationNodeAnimation.new()
		node.animation = StringName(str(point["animation"]))
		if flat and not point.has("position") or not flat and not point.has("positionX"):
			return _core.fail("invalid", "A point of a %s space needs %s." % [args["type"], "position" if flat else "positionX and positionY"])
		space.add_blend_point(node, point["position"] if flat else Vector2(point["positionX"], point.get("positionY", 0.0)))
	var name := StringName(str(args["blendSpaceName"]))
	var root: AnimationRootNode = tree.tree_root
	if root is AnimationNodeStateMachine or root is AnimationNodeBlendTree:
		if root.has_node(name):
			root.remove_node(name)
		root.add_node(name, space, Vector2(400, 300))
	else:
		tree.tree_root = space
	_core.touched["tree_root"] = true
	return {"points": args["points"].size()}
