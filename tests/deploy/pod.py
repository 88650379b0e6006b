"""Runs a rendered pod as local processes, with its commands, environment and volumes.

Differences from a container: paths lie below a folder, ports are free local ports, and Service names do not resolve.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.deploy.chart import Json
from tests.deploy.kubelet import mount
from tests.flows.process import environment

BIN: Final = Path(sys.prefix) / "bin"
Secrets = Mapping[str, Mapping[str, bytes]]
INSIDE: Final = "http://gatehouse.prod.svc"


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


@dataclass
class Pod:
    """One rendered pod. `secrets` are the Secrets that the operator creates; volumes in `claims` outlive the pod."""

    folder: Path
    spec: Json
    objects: list[Json]
    secrets: Secrets = field(default_factory=dict[str, Mapping[str, bytes]])
    claims: Path | None = None
    gateway: str = ""
    """The URL that replaces the name of the Service."""

    def __post_init__(self) -> None:
        self.port, self.ops = free_port(), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._volumes = {each["name"]: each for each in self.spec.get("volumes", ())}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def container(self, name: str) -> tuple[list[str], dict[str, str]]:
        """The command and environment of a container, with its volumes mounted."""
        (found,) = [
            each for each in [*self.spec.get("initContainers", ()), *self.spec["containers"]] if each["name"] == name
        ]
        paths: dict[str, Path] = {}
        for each in _outer_first(found["volumeMounts"]):
            paths[each["mountPath"]] = self._mount(each, paths)

        def resolve(text: str) -> str:
            return _replace_paths(text, paths).replace(INSIDE, self.gateway or INSIDE)

        env = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        for each in found.get("envFrom", ()):
            env |= {key: value.decode() for key, value in self.secrets[each["secretRef"]["name"]].items()}
        for each in found.get("env", ()):
            env[each["name"]] = self._value(each, env, resolve)
        if "GATEHOUSE__SERVER__PORT" in env:
            env |= {"GATEHOUSE__SERVER__PORT": str(self.port), "GATEHOUSE__SERVER__OPS_PORT": str(self.ops)}
        return [resolve(argument) for argument in found["command"]], environment(**env)

    def run(self, name: str, *instead: str) -> subprocess.CompletedProcess[str]:
        """Run a container until it exits, or run another command in it, as `kubectl exec` does."""
        command, env = self.container(name)
        return subprocess.run(
            list(instead) or command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120
        )

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        command, env = self.container(name)
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=env, stdout=out, stderr=log)

    def _value(self, each: Json, env: Mapping[str, str], resolve: Any) -> str:
        if "valueFrom" in each:
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            return {"metadata.name": self.folder.name, "spec.nodeName": "node", "status.podIP": "127.0.0.1"}[path]
        return resolve(re.sub(r"\$\((\w+)\)", lambda found: env[found[1]], str(each["value"])))

    def _mount(self, at: Json, outer: Mapping[str, Path]) -> Path:
        volume, path = self._volumes[at["name"]], Path(at["mountPath"])
        inside = [each for each in outer if path.is_relative_to(each)]
        place = outer[inside[-1]] / path.relative_to(inside[-1]) if inside else self.folder / "root" / str(path)[1:]
        match volume:
            case {"persistentVolumeClaim": {"claimName": name}}:
                assert self.claims is not None
                place = self.claims / name
            case {"secret": source}:
                self._lay_out(place, source, self.secrets[source["secretName"]])
            case {"configMap": source}:
                self._lay_out(place, source, self._config_map(source["name"]))
            case _:
                assert "emptyDir" in volume, volume
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _lay_out(self, place: Path, source: Json, data: Mapping[str, bytes]) -> None:
        if (place / "..data").exists():
            return
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        # With an fsGroup, the kubelet gives the group the owner's read permission.
        mode = source.get("defaultMode", 0o644)
        mount(place, {each["path"]: data[each["key"]] for each in items}, mode | (mode & 0o400) >> 3)

    def _config_map(self, name: str) -> dict[str, bytes]:
        (found,) = [each for each in self.objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name]
        return {key: value.encode() for key, value in found["data"].items()}


def _outer_first(mounts: list[Json]) -> list[Json]:
    return sorted(mounts, key=lambda each: len(each["mountPath"]))


def _replace_paths(text: str, paths: Mapping[str, Path]) -> str:
    """Replace every mount path in the text by its local path, in one pass. /tmp stays /tmp."""
    known = {path: str(place) for path, place in paths.items() if path != "/tmp"}
    if not known:
        return text
    pattern = "|".join(re.escape(path) for path in sorted(known, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({pattern})(?=[/\s\"']|$)", lambda found: known[found[1]], text)


def stop(process: "subprocess.Popen[bytes]", seconds: float = 20) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return
    process.kill()
    process.wait()
