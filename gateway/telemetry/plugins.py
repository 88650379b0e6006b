"""Finds the span processors and span exporters that installed packages add by entry point."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

PROCESSORS: Final = "gatehouse.span_processors"
"""Each entry point is a callable without arguments that returns a `SpanProcessor` of the OpenTelemetry SDK."""
EXPORTERS: Final = "gatehouse.span_exporters"
"""Each entry point is a callable without arguments that returns a `SpanExporter` of the OpenTelemetry SDK."""


class PluginError(Exception):
    """An installed entry point cannot be loaded."""


def find_plugins() -> list[EntryPoint]:
    """Return the entry points of both groups. None of them is imported."""
    return [*entry_points(group=PROCESSORS), *entry_points(group=EXPORTERS)]


def load_plugin(plugin: EntryPoint) -> Any:
    """Call the entry point. Raises `PluginError`."""
    try:
        return plugin.load()()
    except Exception as exc:
        package = plugin.dist.name if plugin.dist is not None else "an unknown package"
        message = f"entry point {plugin.name!r} of {package} in {plugin.group} failed: {type(exc).__name__}: {exc}"
        raise PluginError(f"{message}; correct or uninstall the package") from exc
