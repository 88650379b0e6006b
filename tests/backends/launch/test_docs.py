"""The documentation page, the manifest and the tool definitions are complete and consistent."""

from pathlib import Path

from backends.launch import manifest
from backends.launch.gates.runner import GATES
from backends.launch.options import Options
from backends.launch.states import State
from backends.launch.tools import tools

PAGE = Path(__file__).parents[3] / "docs" / "launch.md"


def test_documentation_page_names_every_option_tool_gate_and_state() -> None:
    text = PAGE.read_text()
    names = [*Options.model_fields, *(gate.name for gate in GATES), *(tool.name for tool in tools())]
    missing = [name for name in (*names, *State) if name not in text]
    assert missing == []


def test_manifest_declares_effect_and_timeout_of_every_tool() -> None:
    names = {tool.name for tool in tools()}
    assert set(manifest.effects) == set(manifest.timeouts) == names
    reading = {tool.name for tool in tools() if tool.annotations and tool.annotations.read_only_hint}
    assert {name for name, effect in manifest.effects.items() if effect == 0} == reading


def test_every_tool_has_a_closed_input_schema_and_an_output_schema_with_errors() -> None:
    for tool in tools():
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema is not None
        assert tool.output_schema["else"] == {"required": ["error"]}
