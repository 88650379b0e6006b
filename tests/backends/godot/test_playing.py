"""Playing a game through the gateway: a scripted agent builds a platformer from nothing, plays and photographs it."""

import base64
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from backends.godot import platformer
from backends.godot.engine import display
from tests.backends.godot.authoring_rows import GAME_ROWS
from tests.backends.godot.test_every_tool import run_rows
from tests.prerequisites import skip_or_fail

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def needs_display() -> None:
    if not display.is_available():
        skip_or_fail("Xvfb is not installed")


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Return width, height and the RGB bytes of a PNG with eight bits per channel."""
    stream = io.BytesIO(png[8:])
    width = height = channels = 0
    data = b""
    while header := stream.read(8):
        length, kind = struct.unpack(">I4s", header)
        body = stream.read(length)
        stream.read(4)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
            channels = {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            data += body
    raw = zlib.decompress(data)
    rows: list[bytearray] = []
    stride = width * channels
    for y in range(height):
        start = y * (stride + 1)
        row = bytearray(raw[start + 1 : start + 1 + stride])
        above = rows[-1] if rows else bytearray(stride)
        for x in range(stride):
            left = row[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            row[x] = (row[x] + predict(raw[start], left, above[x], corner)) & 255
        rows.append(row)
    plain = b"".join(bytes(row[i : i + 3]) for row in rows for i in range(0, stride, channels))
    return width, height, plain


def predict(method: int, left: int, above: int, corner: int) -> int:
    match method:
        case 1:
            return left
        case 2:
            return above
        case 3:
            return (left + above) // 2
        case 4:
            guess = left + above - corner
            return min((left, above, corner), key=lambda value: abs(guess - value))
        case _:
            return 0


def count_color(png: bytes, color: tuple[int, int, int]) -> int:
    _, _, plain = pixels(png)
    return sum(plain[i : i + 3] == bytes(color) for i in range(0, len(plain), 3))


async def call(harness: Any, tool: str, arguments: Json) -> tuple[Json, list[bytes]]:
    """Return the envelope and the pictures of a call."""
    answer = await harness._post(f"godot.{tool.removeprefix('godot_')}", arguments)
    result = answer["result"]
    assert result["structuredContent"]["ok"], (tool, arguments, result["structuredContent"]["error"])
    pictures = [base64.b64decode(each["data"]) for each in result["content"] if each["type"] == "image"]
    return result["structuredContent"], pictures


async def test_agent_builds_and_plays_a_platformer(engine_harness: Any, tmp_path: Path) -> None:
    project = str(engine_harness.root / "platformer")
    for tool, arguments in platformer.steps(project):
        envelope, _ = await call(engine_harness, tool, arguments)
    assert envelope["result"]["valid"], envelope["result"]["issues"]
    files = {path.relative_to(project) for path in Path(project).rglob("*") if ".godot" not in path.as_posix()}

    pictures: list[bytes] = []
    answers: list[Json] = []
    for tool, arguments in platformer.play_steps(project):
        envelope, taken = await call(engine_harness, tool, arguments)
        pictures += taken
        answers.append(envelope["result"])
    assert answers[-2]["value"] == 2
    assert [answer["errors"] for answer in answers if answer.get("errors")] == []
    # Start, after the first coin, in the air with the second coin, a strip of two, and dead.
    assert len(pictures) == 6
    coins = [count_color(picture, (255, 215, 0)) for picture in (*pictures[:3], pictures[-1])]
    assert coins[0] > coins[1] > coins[2] == coins[3] == 0
    # The player is tinted when it dies, and the picture of the thorn is overridden in this level alone.
    assert count_color(pictures[0], (0, 191, 255)) > 300
    assert count_color(pictures[-1], (0, 191, 255)) == 0
    assert count_color(pictures[0], (0, 100, 0)) > 300
    assert {path.relative_to(project) for path in Path(project).rglob("*") if ".godot" not in path.as_posix()} == files


async def test_every_action_of_the_game_manager_returns_the_expected_result(open_harness: Any, engine: Path) -> None:
    async with open_harness(godot_path=str(engine), allow_dangerous_ops=True) as harness:
        await run_rows(harness, GAME_ROWS)


async def test_screenshot_is_image_content_beside_the_file(engine_harness: Any) -> None:
    await engine_harness.call_ok(
        "add_node",
        scenePath="main.tscn",
        nodeType="ColorRect",
        nodeName="Red",
        properties={"color": "red", "size": [200, 100]},
    )
    before = set(engine_harness.project.rglob("*.png"))
    arguments = {
        "projectPath": str(engine_harness.project),
        "scenePath": "main.tscn",
        "outputPath": "shots/one.png",
        "delay": 0.1,
        "maxSize": 576,
    }
    envelope, pictures = await call(engine_harness, "take_screenshot", arguments)
    assert len(pictures) == 1
    path = engine_harness.project / "shots" / "one.png"
    assert path.read_bytes() == pictures[0]
    assert set(engine_harness.project.rglob("*.png")) - before == {path}
    width, height, _ = pixels(pictures[0])
    assert (width, height) == (576, 324)
    assert count_color(pictures[0], (255, 0, 0)) > 4000
    assert envelope["files"][0]["resPath"] == "res://shots/one.png"


async def test_live_game_is_read_changed_and_called(engine_harness: Any) -> None:
    script = 'extends Node2D\nvar hits := 0\nfunc hit(by: int) -> int:\n\thits += by\n\tprint("hit")\n\treturn hits\n'
    await engine_harness.call_ok("write_script", scriptPath="game.gd", content=script)
    await engine_harness.call_ok("attach_script", scenePath="main.tscn", nodePath=".", scriptPath="game.gd")

    async def game(action: str, **arguments: Any) -> Json:
        return await engine_harness.call("godot_game_manager", action=action, **arguments)

    assert (await game("run"))["error"]["code"] == "E_NOT_FOUND"
    assert (await game("start", scene="main.tscn"))["ok"]
    tree = (await game("tree"))["result"]["tree"]
    assert tree["children"][0]["name"] == "Player"
    assert (await game("call", nodePath=".", method="hit", args=[3]))["result"]["value"] == 3
    assert (await game("get_property", nodePath=".", property="hits"))["result"]["value"] == 3
    moved = await game("set_property", nodePath="Player", property="position", value=[7, 8])
    assert moved["result"]["value"] == {"$type": "Vector2", "x": 7, "y": 8}
    assert (await game("set_property", nodePath="Player", property="position", value="abc"))["error"]["code"] == (
        "E_SCHEMA_VALIDATION"
    )
    assert (await game("performance"))["result"]["nodes"] >= 3
    assert (await game("evaluate", expression="1 + 1"))["error"]["code"] == "E_PERMISSION_DENIED"
    missing = await game("run", frames=3, until={"nodePath": ".", "property": "hits", "value": 9})
    assert missing["error"]["code"] == "E_TIMEOUT"
    unknown = await game("input", events=[{"type": "action", "name": "fly"}])
    assert unknown["error"]["code"] == "E_NOT_FOUND"
    stopped = await game("stop")
    assert "hit" in stopped["result"]["output"]
    assert (await game("tree"))["error"]["code"] == "E_NOT_FOUND"


async def test_game_that_quits_ends_with_its_output(engine_harness: Any) -> None:
    script = "extends Node2D\nfunc spin() -> void:\n\tget_tree().quit()\n"
    await engine_harness.call_ok("write_script", scriptPath="game.gd", content=script)
    await engine_harness.call_ok("attach_script", scenePath="main.tscn", nodePath=".", scriptPath="game.gd")
    await engine_harness.call_ok("godot_game_manager", action="start", scene="main.tscn")
    await engine_harness.call_ok("godot_game_manager", action="call", nodePath=".", method="spin")
    code = await engine_harness.error_code("godot_game_manager", action="run", frames=100)
    assert code == "E_INTERNAL"
