"""Opens and checks the policies that `policies:` names."""

from pathlib import Path

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.settings import Settings
from gateway.upstream.health import LoadError


def policies_folder(settings: Settings) -> Path:
    return settings.policies.dir or SHIPPED


def check_policies(settings: Settings) -> None:
    """Raise `LoadError` if the policies cannot be loaded."""
    try:
        load(policies_folder(settings))
    except InvalidPolicies as exc:
        raise policy_load_error(settings, exc) from exc


def policy_load_error(settings: Settings, exc: InvalidPolicies) -> LoadError:
    """Build the error with every invalid line."""
    setting = "policies" if settings.policies.dir is None else "policies.dir"
    return LoadError(f"{setting}: {'; '.join(exc.lines)}")


async def open_policies(settings: Settings) -> ActivePolicies:
    """Load and watch the policies. Raises `LoadError` with every invalid line."""
    try:
        return await ActivePolicies.open(policies_folder(settings))
    except InvalidPolicies as exc:
        raise policy_load_error(settings, exc) from exc
