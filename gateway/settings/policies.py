"""`policies:`, who may do what."""

from pathlib import Path

from pydantic import Field

from gateway.settings.section import Section


class Policies(Section):
    """Who may do what, as Cedar policies."""

    dir: Path | None = Field(
        default=None,
        description="Folder of the policies, whose edits apply at once; those that came along unless given.",
    )
