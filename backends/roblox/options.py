"""The settings of the roblox backend."""

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bridge_enabled: bool = Field(default=False, description="Whether Studios may be worked on; without it, no tools.")
    request_timeout: float = Field(default=5.0, gt=0, description="Seconds a Studio may take to answer.")
    execute_timeout: float = Field(default=30.0, gt=0, le=55, description="The same, for script_execute.")
