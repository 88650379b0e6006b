"""The folder of policies that the settings name."""

from pathlib import Path

from gateway.policy.shelf import load
from gateway.policy.source import SHIPPED, BadPolicies
from gateway.settings import Settings
from gateway.upstream.refusal import LoadError


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
