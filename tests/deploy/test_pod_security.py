"""Every pod of every case, hooks and tests too, may run where the `restricted` pod security standard is enforced."""

import copy
from typing import Any

import pytest

from tests.deploy.chart import CASES, Json, documents, one, pods, rendered, template

VOLUMES = {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "csi"}


def problems(pod: Json) -> list[str]:
    """Every way in which a pod asks for more than `restricted` gives, or takes without bounds."""
    spec, found = pod["spec"], list[str]()
    security = spec.get("securityContext", {})
    if spec.get("automountServiceAccountToken") is not False:
        found.append("the token of its service account is mounted")
    found += [f"{key} is set" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", ()):
        if not volume.keys() & VOLUMES:
            found.append(f"volume {volume['name']} is not of a kind that is allowed")
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        own = {**security, **container.get("securityContext", {})}
        name = container["name"]
        if own.get("runAsNonRoot") is not True or own.get("runAsUser", 1) == 0:
            found.append(f"{name} may be root")
        if own.get("privileged"):
            found.append(f"{name} is privileged")
        if own.get("allowPrivilegeEscalation") is not False:
            found.append(f"{name} may gain privileges")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            found.append(f"{name} keeps capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            found.append(f"{name} may write to its root")
        if own.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            found.append(f"{name} has no seccomp profile")
        if any("hostPort" in port for port in container.get("ports", ())):
            found.append(f"{name} takes a port of its node")
        resources = container.get("resources", {})
        for what in ("requests", "limits"):
            if not {"cpu", "memory"} <= resources.get(what, {}).keys():
                found.append(f"{name} has no {what}")
    return found


@pytest.mark.parametrize("case", CASES)
def test_no_pod_is_root_or_privileged_or_without_limits(case: str) -> None:
    found = pods(rendered(case))
    assert {"Deployment/gatehouse", "Pod/gatehouse-test"} <= found.keys()
    assert {name: said for name, pod in found.items() if (said := problems(pod))} == {}


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (("securityContext", "runAsUser"), 0, "may be root"),
        (("containers", 0, "securityContext", "privileged"), True, "privileged"),
        (("containers", 0, "securityContext", "allowPrivilegeEscalation"), True, "gain privileges"),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "capabilities"),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False, "write to its root"),
        (("containers", 0, "resources"), {"requests": {"cpu": 1, "memory": 1}}, "no limits"),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}, "seccomp"),
        (("hostNetwork",), True, "hostNetwork"),
        (("volumes", 0), {"name": "x", "hostPath": {"path": "/"}}, "volume x"),
    ],
)
def test_the_check_finds_what_is_wrong(at: tuple[Any, ...], value: Any, said: str) -> None:
    pod = copy.deepcopy(pods(rendered("default"))["Deployment/gatehouse"])
    where = pod["spec"]
    for step in at[:-1]:
        where = where[step]
    where[at[-1]] = value
    assert any(said in problem for problem in problems(pod))


def test_where_the_platform_chooses_the_user_none_is_named() -> None:
    nulls = [f"podSecurityContext.{key}=null" for key in ("runAsUser", "runAsGroup", "fsGroup")]
    given = [word for each in nulls for word in ("--set", each)]
    security = one(documents(template(*given)), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert security.keys() == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
