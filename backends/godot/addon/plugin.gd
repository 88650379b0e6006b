# Connects to the gateway, reconnects with backoff, and answers one request at a time by its id.
@tool
extends EditorPlugin

const SETTINGS := "res://.godot_mcp/bridge.cfg"
const URL := "ws://127.0.0.1:8080/bridge/godot"
const FIRST_WAIT := 1.0
const LONGEST_WAIT := 30.0
const BUFFER := 8 << 20

var _socket: WebSocketPeer
var _actions: RefCounted
var _wait := FIRST_WAIT
var _left := 0.0
var _open := false
var _busy := false
var _playing := false


func _enter_tree() -> void:
	_actions = preload("actions.gd").new(self)
	scene_changed.connect(func(root: Node) -> void: _tell("scene_opened", {"scene": root.scene_file_path if root else ""}))
	scene_saved.connect(func(path: String) -> void: _tell("scene_saved", {"scene": path}))
	EditorInterface.get_resource_filesystem().filesystem_changed.connect(func() -> void: _tell("filesystem_changed", {}))
	get_undo_redo().version_changed.connect(_on_changed)


# The user made, undid or redid a change. Changes made by gateway requests send their own events.
func _on_changed() -> void:
	var root := EditorInterface.get_edited_scene_root()
	if root != null and not _busy:
		_tell("node_modified", {"scene": root.scene_file_path})


func _exit_tree() -> void:
	if _socket != null:
		_socket.close()


func _process(delta: float) -> void:
	if _socket == null:
		_left -= delta
		if _left <= 0.0:
			_connect()
		return
	_socket.poll()
	match _socket.get_ready_state():
		WebSocketPeer.STATE_OPEN:
			if not _open:
				_open = true
				_wait = FIRST_WAIT
			while _socket != null and _socket.get_available_packet_count() > 0:
				_answer(_socket.get_packet().get_string_from_utf8())
			_look_at_game()
		WebSocketPeer.STATE_CLOSED:
			_socket = null
			_open = false
			_left = _wait
			_wait = minf(_wait * 2.0, LONGEST_WAIT)


func _connect() -> void:
	var settings := ConfigFile.new()
	settings.load(SETTINGS)
	var token := OS.get_environment("GATEHOUSE_BRIDGE_TOKEN")
	if token.is_empty():
		token = settings.get_value("bridge", "token", "")
	var url := OS.get_environment("GATEHOUSE_BRIDGE_URL")
	if url.is_empty():
		url = settings.get_value("bridge", "url", URL)
	_left = LONGEST_WAIT
	if token.is_empty():
		return
	var project := ProjectSettings.globalize_path("res://").trim_suffix("/")
	_socket = WebSocketPeer.new()
	_socket.inbound_buffer_size = BUFFER
	_socket.outbound_buffer_size = BUFFER
	_socket.handshake_headers = PackedStringArray(["Authorization: Bearer " + token])
	if _socket.connect_to_url(url + "?project=" + project.uri_encode()) != OK:
		_socket = null


func _answer(line: String) -> void:
	var request: Variant = JSON.parse_string(line)
	if not request is Dictionary or not request.has("requestId"):
		return
	_busy = true
	var answer: Dictionary = _actions.perform(str(request.get("operation")), request.get("payload", {}))
	_busy = false
	answer["requestId"] = request["requestId"]
	_send(answer)
	for event: Array in _actions.take_events():
		_tell(event[0], event[1])


# Sends an event when the project starts or stops, whether the user or a request caused it.
func _look_at_game() -> void:
	var playing := EditorInterface.is_playing_scene()
	if playing != _playing:
		_playing = playing
		_tell("project_started" if playing else "project_stopped", {"scene": EditorInterface.get_playing_scene()})


func _tell(event: String, data: Dictionary) -> void:
	if _open:
		_send({"event": event, "data": data})


func _send(message: Dictionary) -> void:
	if _socket != null and _socket.get_ready_state() == WebSocketPeer.STATE_OPEN:
		_socket.send_text(JSON.stringify(message))
