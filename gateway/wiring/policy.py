"""The folder of policies that the settings name.

Policies as the settings name them, and what operators may ask about them.
"""

from collections.abc import Callable
from pathlib import Path

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Caller, Json
from gateway.policy.active_policies import Policies, load
from gateway.policy.explain import Explain
from gateway.policy.source import SHIPPED, BadPolicies
from gateway.settings import Settings
from gateway.state.tenants import Tenant
from gateway.upstream.health import LoadError


def policies_folder(settings: Settings) -> Path:
    return settings.policies.dir or SHIPPED


def judge_policies(settings: Settings) -> None:
    """Raises `LoadError` where a start would, and keeps nothing."""
    try:
        load(policies_folder(settings))
    except BadPolicies as exc:
        raise unusable(settings, exc) from exc


def unusable(settings: Settings, exc: BadPolicies) -> LoadError:
    """With every line that is wrong."""
    setting = "policies" if settings.policies.dir is None else "policies.dir"
    return LoadError(f"{setting}: {'; '.join(exc.lines)}")


async def read_policies(settings: Settings) -> Policies:
    """Raises `LoadError` with every line that is wrong."""
    try:
        return await Policies.open(policies_folder(settings))
    except BadPolicies as exc:
        raise unusable(settings, exc) from exc


class Advice:
    def __init__(self, tenant: Callable[[str], Tenant | None], policies: Policies, catalogue: Catalogue) -> None:
        self._tenant = tenant
        self._policies = policies
        self._catalogue = catalogue

    def why(self, caller: Caller, tool: str, arguments: Json, approved: bool, own: bool = False) -> Json:
        """What would become of that call, and by which policies; `own` as in `Explain.why`."""
        explain = Explain(self._tenant, self._policies, self._catalogue.everything().tools.get)
        return explain.why(caller, tool, arguments, approved=approved, own=own).as_json()

    def seen_tools(self, caller: Caller) -> list[Json]:
        """The tools as they are listed to that caller."""
        view = self._catalogue.view(caller, "/mcp")
        return view.items("tools/list") if view else []
