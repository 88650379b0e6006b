"""MCP prompts of the backend: instructions for common tasks with the godot tools."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.contract import Json
from gateway.errors import Fault, Kind

_BUILD = (
    "Work on the Godot project with the godot tools: look first (get_project_info, list_scenes), make scenes with"
    " create_scene and add_node, write scripts with write_script and attach them with attach_script, then check with"
    " validate_project and run with godot_workspace_manager smoke_test. Fix what they report."
)
_ANALYZE = (
    "Look before changing anything: get_node_tree, read_script, get_script_errors, get_debug_output. Say what is wrong"
    " and why, then make the smallest change that fixes it and check again."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    arguments: str
    """Space-separated argument names; `*` marks a required one."""
    task: str
    """Text with argument names in braces as placeholders."""
    guide: str = _BUILD

    def parse_arguments(self) -> list[tuple[str, bool]]:
        return [(word.rstrip("*"), word.endswith("*")) for word in self.arguments.split()]


PROMPTS: Final = (
    Prompt(
        "create_character_controller", "type* features", "Make a {type} character controller. Features: {features}."
    ),
    Prompt("create_enemy_ai", "behavior* type", "Make an enemy that behaves like this: {behavior}. Kind: {type}."),
    Prompt("create_npc", "npcType* is3D", "Make a non-player character: {npcType}. In 3D: {is3D}."),
    Prompt("create_collectible", "itemType* is3D", "Make an item to collect: {itemType}. In 3D: {is3D}."),
    Prompt("create_projectile", "projectileType* is3D", "Make a projectile: {projectileType}. In 3D: {is3D}."),
    Prompt(
        "scaffold_platformer",
        "projectName* features",
        "Lay out a platformer called {projectName}. Features: {features}.",
    ),
    Prompt(
        "scaffold_topdown",
        "projectName* features",
        "Lay out a top-down game called {projectName}. Features: {features}.",
    ),
    Prompt(
        "scaffold_fps",
        "projectName* features",
        "Lay out a first-person game called {projectName}. Features: {features}.",
    ),
    Prompt("scaffold_puzzle", "projectName* puzzleType", "Lay out a puzzle game called {projectName}: {puzzleType}."),
    Prompt(
        "scaffold_ui_system", "projectName* components", "Lay out the user interface of {projectName}: {components}."
    ),
    Prompt(
        "create_ui_component",
        "componentType* style",
        "Make a part of a user interface: {componentType}. Style: {style}.",
    ),
    Prompt(
        "setup_multiplayer", "architecture* features", "Set up multiplayer as {architecture}. Features: {features}."
    ),
    Prompt(
        "debug_script",
        "scriptPath* errorMessage",
        "Find what is wrong in {scriptPath}. Error message: {errorMessage}.",
        _ANALYZE,
    ),
    Prompt(
        "debug_physics", "scenePath* issue", "Find what is wrong with the physics of {scenePath}: {issue}.", _ANALYZE
    ),
    Prompt("debug_performance", "scenePath* focus", "Find what makes {scenePath} slow. Look at: {focus}.", _ANALYZE),
    Prompt("optimize_scene", "scenePath*", "Make {scenePath} lighter without changing what it does.", _ANALYZE),
    Prompt("create_shader", "effect* target", "Write a shader for this effect: {effect}. For: {target}."),
    Prompt(
        "convert_3to4", "projectPath* focus", "Bring {projectPath} from Godot 3 to Godot 4. Look at: {focus}.", _ANALYZE
    ),
    Prompt("refactor_scene", "scenePath* action", "Put {scenePath} in better order: {action}.", _ANALYZE),
    Prompt("analyze_project", "projectPath* focus", "Describe how {projectPath} is built. Look at: {focus}.", _ANALYZE),
)
_BY_NAME: Final[Mapping[str, Prompt]] = {prompt.name: prompt for prompt in PROMPTS}


def list_prompts() -> list[Json]:
    return [
        {
            "name": prompt.name,
            "description": prompt.task.partition(":")[0].partition(".")[0].replace("{", "").replace("}", "") + ".",
            "arguments": [{"name": name, "required": required} for name, required in prompt.parse_arguments()],
        }
        for prompt in PROMPTS
    ]


def get(name: str, arguments: Mapping[str, str]) -> Json:
    prompt = _BY_NAME.get(name)
    if prompt is None:
        raise Fault(Kind.NOT_FOUND, f"There is no prompt {name!r}.")
    missing = [each for each, required in prompt.parse_arguments() if required and not arguments.get(each)]
    if missing:
        raise Fault(Kind.INVALID_INPUT, f"{', '.join(missing)} is needed.", details={"missing": missing})
    values = {each: arguments.get(each) or "as you think best" for each, _ in prompt.parse_arguments()}
    text = f"{prompt.task.format_map(values)}\n\n{prompt.guide}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
