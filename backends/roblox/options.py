"""The settings of the roblox backend."""

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    bridge_enabled: bool = Field(
        default=False, description="Accept Studio connections. When false, the backend has no tools."
    )
    extended_tools: bool = Field(
        default=False, description="Offer run_code, console_read, undo and redo beside the tools of the contract."
    )
    request_timeout: float = Field(default=5.0, gt=0, description="Seconds to wait for a Studio's response.")
    execute_timeout: float = Field(default=30.0, gt=0, le=55, description="Seconds to wait for script_execute.")
