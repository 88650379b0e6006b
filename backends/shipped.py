"""The modules that ship. The gateway loads this file by name."""

from typing import Final

from gateway.contract.shipped import DemoOption, ShippedBackend, ShippedDemo

BACKENDS: Final = (
    ShippedBackend(namespace="core", module="backends.core", entry="{module: backends.core}", summary="ping"),
    ShippedBackend(
        namespace="project",
        module="backends.core:project",
        entry='{module: "backends.core:project"}',
        summary="counts the files of a workspace",
    ),
    ShippedBackend(
        namespace="workflow",
        module="backends.workflow",
        entry="{module: backends.workflow}",
        summary="multi-step runs over all backends",
    ),
    ShippedBackend(
        namespace="knowledge",
        module="backends.knowledge",
        entry="{module: backends.knowledge}",
        summary="shared knowledge base",
    ),
    ShippedBackend(
        namespace="launch",
        module="backends.launch",
        entry="{module: backends.launch}",
        summary="documentation sites from a repository",
        packages=("tree_sitter", "hugo"),
        demo=ShippedDemo(
            "backends.launch.demo", "Create the documentation site of a small product, up to a pull request."
        ),
    ),
    ShippedBackend(
        namespace="godot",
        module="backends.godot",
        entry="{module: backends.godot, options: {roots: [projects]}}",
        summary="Godot projects below ./projects",
        default=False,
        demo=ShippedDemo(
            "backends.godot.demo",
            "Build a small game in an empty folder and run it on a real Godot engine.",
            (DemoOption("engine", "PROGRAM", "Godot 4 executable; default: from PATH.", "GODOT_PATH"),),
        ),
    ),
    ShippedBackend(
        namespace="roblox",
        module="backends.roblox",
        entry="{module: backends.roblox, options: {bridge_enabled: true}}",
        summary="Roblox Studio, through its plugin",
        default=False,
        demo=ShippedDemo(
            "backends.roblox.demo", "Build a small forest in a headless Studio through the real Studio plugin."
        ),
    ),
)
