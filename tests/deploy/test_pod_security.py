"""Every pod of every case, including hooks and tests, meets the `restricted` pod security standard."""

import copy
from typing import Any

import pytest

from tests.deploy.chart import CASES, Json, documents, one, pods, rendered, template

VOLUMES = {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret", "csi"}


def problems(pod: Json) -> list[str]:
    """Every violation of the `restricted` standard, and every missing resource request or limit."""
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
        for quantity in ("requests", "limits"):
            if not {"cpu", "memory"} <= resources.get(quantity, {}).keys():
                found.append(f"{name} has no {quantity}")
    return found


@pytest.mark.parametrize("case", CASES)
def test_no_pod_is_root_or_privileged_or_without_limits(case: str) -> None:
    found = pods(rendered(case))
    assert {"Deployment/gatehouse", "Pod/gatehouse-test"} <= found.keys()
    assert {name: message for name, pod in found.items() if (message := problems(pod))} == {}


@pytest.mark.parametrize(
    ("at", "value", "message"),
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
def test_check_reports_each_violation(at: tuple[Any, ...], value: Any, message: str) -> None:
    pod = copy.deepcopy(pods(rendered("default"))["Deployment/gatehouse"])
    where = pod["spec"]
    for step in at[:-1]:
        where = where[step]
    where[at[-1]] = value
    assert any(message in problem for problem in problems(pod))


def test_user_and_group_can_be_left_to_the_platform() -> None:
    nulls = [f"podSecurityContext.{key}=null" for key in ("runAsUser", "runAsGroup", "fsGroup")]
    arguments = [argument for each in nulls for argument in ("--set", each)]
    security = one(documents(template(*arguments)), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert security.keys() == {"runAsNonRoot", "fsGroupChangePolicy", "seccompProfile"}
