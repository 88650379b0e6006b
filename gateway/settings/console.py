"""`console:`, the operator's page."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.settings.section import Section

_WHO = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/(user|service|group):[^\s/]{1,256}", re.ASCII)


def _who(given: str) -> str:
    if not _WHO.fullmatch(given):
        raise ValueError("expected a person or group such as default/user:alice or default/group:platform")
    return given


class Console(Section):
    """What operators are shown."""

    organisation: tuple[Annotated[str, AfterValidator(_who)], ...] = Field(
        default=(),
        description="Who sees every tenant with the scope mcp:admin, such as default/user:alice or "
        "default/group:platform; others see their own, and the owner of the only machine that is served sees all.",
    )
