"""Policies as the settings name them, and what operators may ask about them."""

from collections.abc import Callable

from gateway.catalogue.catalogue import Catalogue
from gateway.contract import Caller, Json
from gateway.parts.rules import policies_folder, unusable
from gateway.policy.explain import Explain
from gateway.policy.shelf import Policies
from gateway.policy.source import BadPolicies
from gateway.settings import Settings
from gateway.state.tenants import Tenant


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
