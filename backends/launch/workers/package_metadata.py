"""Reads name, version, licence, description and requirements of a product from its package files, with lines."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.contract import Json

INSTALL_COMMANDS: Final = {
    "python": "pip install {name}", "javascript": "npm install {name}", "typescript": "npm install {name}",
    "rust": "cargo add {name}", "go": "go get {name}", "dotnet": "dotnet add package {name}",
    "ruby": "gem install {name}", "php": "composer require {name}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metadata:
    """The facts of one package file. `lines` has the line of each field."""

    path: str = ""
    name: str = ""
    version: str = ""
    license: str = ""
    description: str = ""
    requirement: str = ""
    """A sentence about the supported versions of the language."""
    group: str = ""
    """The group id of a Maven or Gradle package."""
    lines: dict[str, int] = field(default_factory=dict[str, int])

    def line(self, key: str) -> int:
        return self.lines.get(key, 1)


def read(path: str, text: str) -> Metadata:
    """Parse a package file. Fields that cannot be read are empty."""
    name = path.rsplit("/", 1)[-1]
    try:
        values = _reader(name)(text)
    except (ValueError, KeyError, TypeError, AttributeError, tomllib.TOMLDecodeError):
        return Metadata(path)
    known = {
        key: " ".join(str(value).split())[:500] for key, value in values.items() if isinstance(value, (str, int, float))
    }
    lines = {key: _line_of(text, key, value) for key, value in known.items() if value}
    requirement = _requirement(values.get("requires") or ("", ""))
    if requirement:
        lines["requirement"] = _line_of(text, "requires", str(values["requires"][1]))
    return Metadata(
        path,
        known.get("name", ""),
        known.get("version", ""),
        known.get("license", ""),
        known.get("description", ""),
        requirement,
        known.get("group", ""),
        lines,
    )


def _requirement(value: tuple[str, str]) -> str:
    what, version = value
    version = version.strip()
    if not what or not version or len(version) > 60:
        return ""
    found = re.fullmatch(r">=\s*v?([\d.]+)", version)
    plain = re.fullmatch(r"v?[\d.]+", version)
    if found or plain:
        return f"It requires {what} {found[1] if found else version} or later."
    return f"It requires {what} `{version}`."


def _line_of(text: str, key: str, value: str) -> int:
    head = value[:40]
    for number, line in enumerate(text.splitlines(), 1):
        if head and head in line:
            return number
    return 1


def _reader(name: str) -> Callable[[str], Json]:
    exact = _READERS.get(name)
    if exact is not None:
        return exact
    return next((reader for ending, reader in _BY_ENDING.items() if name.endswith(ending)), _no_facts)


def _no_facts(text: str) -> Json:
    return {}


def _as_object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""


def _pyproject(text: str) -> Json:
    data: Json = tomllib.loads(text)
    project = _as_object(data.get("project")) or _as_object(_as_object(data.get("tool")).get("poetry"))
    licence: Any = _as_object(project.get("license")).get("text") or project.get("license")
    python: Any = project.get("requires-python") or _as_object(project.get("dependencies")).get("python", "")
    values: Json = {key: project.get(key, "") for key in ("name", "version", "description")}
    short = licence if isinstance(licence, str) and len(licence) < 60 else ""
    return {**values, "license": short, "requires": ("Python", str(python or ""))}


def _package_json(text: str) -> Json:
    data = _as_object(json.loads(text))
    licence: Any = data.get("license", "")
    engines: Any = _as_object(data.get("engines")).get("node", "")
    values = {key: data.get(key, "") for key in ("name", "version", "description")}
    return {**values, "license": licence if isinstance(licence, str) else "", "requires": ("Node.js", str(engines))}


def _cargo(text: str) -> Json:
    package = _as_object(tomllib.loads(text).get("package"))
    values = {key: package.get(key, "") for key in ("name", "version", "description", "license")}
    return {**values, "requires": ("Rust", str(package.get("rust-version", "")))}


def _composer(text: str) -> Json:
    data = _as_object(json.loads(text))
    licence: Any = data.get("license", "")
    values = {key: data.get(key, "") for key in ("name", "version", "description")}
    php: Any = _as_object(data.get("require")).get("php", "")
    return {**values, "license": licence if isinstance(licence, str) else "", "requires": ("PHP", str(php))}


def _go_mod(text: str) -> Json:
    return {"name": _first(r"^module\s+\"?([^\s\"]+)", text), "requires": ("Go", _first(r"^go\s+([\d.]+)", text))}


def _pom(text: str) -> Json:
    own = re.sub(
        r"<(parent|dependencies|dependencyManagement|build|profiles|plugins|developers)>.*?</\1>",
        "",
        text,
        flags=re.DOTALL,
    )
    parent = re.search(r"<parent>(.*?)</parent>", text, re.DOTALL)
    inherited = parent[1] if parent else ""
    licence = re.search(r"<license>.*?<name>([^<]+)</name>", text, re.DOTALL)
    java = _first(r"<(?:maven\.compiler\.(?:release|source)|java\.version)>([\d.]+)<", text)
    return {
        "name": _first(r"<artifactId>([^<$]+)</artifactId>", own),
        "group": _first(r"<groupId>([^<$]+)</groupId>", own) or _first(r"<groupId>([^<$]+)</groupId>", inherited),
        "version": _first(r"<version>([^<$]+)</version>", own) or _first(r"<version>([^<$]+)</version>", inherited),
        "description": _first(r"<description>\s*([^<]+?)\s*</description>", own),
        "license": licence[1].strip() if licence else "",
        "requires": ("Java", java.removeprefix("1.") if java else ""),
    }


def _setup_cfg(text: str) -> Json:
    values = {key: _first(rf"^{key}\s*=\s*(.+)$", text) for key in ("name", "version", "description", "license")}
    clean = {key: value for key, value in values.items() if not value.startswith(("file:", "attr:"))}
    return {**clean, "requires": ("Python", _first(r"^python_requires\s*=\s*(.+)$", text))}


def _setup_py(text: str) -> Json:
    values = {
        key: _first(rf"\b{key}\s*=\s*[\"']([^\"']+)[\"']", text)
        for key in ("name", "version", "description", "license")
    }
    return {**values, "requires": ("Python", _first(r"python_requires\s*=\s*[\"']([^\"']+)[\"']", text))}


def _pkg_info(text: str) -> Json:
    head = text.split("\n\n")[0]
    fields = {"name": "Name", "version": "Version", "description": "Summary", "license": "License"}
    values = {key: _first(rf"^{label}: (.+)$", head) for key, label in fields.items()}
    return {**values, "requires": ("Python", _first(r"^Requires-Python: (.+)$", head))}


def _gemspec(text: str) -> Json:
    fields = {"name": "name", "version": "version", "description": "summary", "license": "license"}
    values = {key: _first(rf"\.{label}\s*=\s*[\"']([^\"']+)[\"']", text) for key, label in fields.items()}
    return {**values, "requires": ("Ruby", _first(r"required_ruby_version\s*=\s*[\"']([^\"']+)[\"']", text))}


def _csproj(text: str) -> Json:
    fields = {
        "name": "PackageId",
        "version": "Version",
        "description": "Description",
        "license": "PackageLicenseExpression",
    }
    values = {key: _first(rf"<{label}>([^<]+)</{label}>", text) for key, label in fields.items()}
    framework = _first(r"<TargetFrameworks?>([^<]+)</TargetFrameworks?>", text)
    return {**values, "requires": (".NET", framework)}


def _gradle(text: str) -> Json:
    fields = ("group", "version", "description")
    return {key: _first(rf"^\s*{key}\s*=?\s*[\"']([^\"'$]+)[\"']", text) for key in fields}


def _swift_package(text: str) -> Json:
    return {"name": _first(r"name:\s*\"([^\"]+)\"", text)}


def _cmake(text: str) -> Json:
    return {"name": _first(r"project\s*\(\s*([\w.-]+)", text), "version": _first(r"VERSION\s+([\d.]+)", text)}


_READERS: Final[Mapping[str, Callable[[str], Json]]] = {
    "pyproject.toml": _pyproject,
    "package.json": _package_json,
    "Cargo.toml": _cargo,
    "composer.json": _composer,
    "go.mod": _go_mod,
    "pom.xml": _pom,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "PKG-INFO": _pkg_info,
    "Package.swift": _swift_package,
    "CMakeLists.txt": _cmake,
    "build.gradle": _gradle,
    "build.gradle.kts": _gradle,
}
_BY_ENDING: Final[Mapping[str, Callable[[str], Json]]] = {".gemspec": _gemspec, ".csproj": _csproj}


def install_lines(platform: str, metadata: Metadata) -> list[str]:
    """Return the install commands that the package's name and platform imply."""
    template = INSTALL_COMMANDS.get(platform)
    if template is not None and metadata.name:
        return [template.format(name=metadata.name)]
    return []


def names_package(command: str, name: str) -> bool:
    """Whether an install command of a document names this package, with or without extras and version."""
    wanted = re.sub(r"[-_.]+", "-", name.lower())
    words = [re.sub(r"(?:\[.*?\]|[=<>~!@^].*)$", "", word.strip("\"'").lower()) for word in command.split()[1:]]
    scoped = [word for word in command.lower().split() if word.startswith("@")]
    plain = [re.sub(r"[-_.]+", "-", word) for word in words]
    return wanted in plain or any(re.sub(r"[-_.]+", "-", re.sub(r"(?<=.)@.*$", "", word)) == wanted for word in scoped)
