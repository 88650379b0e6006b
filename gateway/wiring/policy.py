"""The folder of policies that the settings name.

Policies as the settings name them, and what operators may ask about them.
"""

from pathlib import Path

from gateway.policy.active_policies import ActivePolicies, load
from gateway.policy.source import SHIPPED, InvalidPolicies
from gateway.settings import Settings
from gateway.upstream.health import LoadError


def policies_folder(settings: Settings) -> Path:
    return settings.policies.dir or SHIPPED


def judge_policies(settings: Settings) -> None:
    """Raises `LoadError` where a start would, and keeps nothing."""
    try:
        load(policies_folder(settings))
    except InvalidPolicies as exc:
        raise unusable(settings, exc) from exc


def unusable(settings: Settings, exc: InvalidPolicies) -> LoadError:
    """With every line that is wrong."""
    setting = "policies" if settings.policies.dir is None else "policies.dir"
    return LoadError(f"{setting}: {'; '.join(exc.lines)}")


async def read_policies(settings: Settings) -> ActivePolicies:
    """Raises `LoadError` with every line that is wrong."""
    try:
        return await ActivePolicies.open(policies_folder(settings))
    except InvalidPolicies as exc:
        raise unusable(settings, exc) from exc
