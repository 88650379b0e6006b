"""Imports libraries without building the validators of their pydantic models. Used by `gatehouse serve`."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def defer_model_builds() -> Generator[None]:
    """Build the models of modules that are imported in this block at their first use (pydantic's `defer_build`).

    The MCP SDK and FastAPI define 600 models, of which a gateway uses a few. Modules of users are imported after the
    block, so that an error in one of their models is reported when the gateway loads it.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
