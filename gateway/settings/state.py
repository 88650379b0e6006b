"""`database:` and `bus:`, where what must outlive a process, or pass between processes, is kept."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from gateway.settings.section import Section
from gateway.settings.values import Count


def _of(*schemes: str, example: str) -> AfterValidator:
    def check(given: SecretStr | None) -> SecretStr | None:
        if given is not None and urlsplit(given.get_secret_value()).scheme not in schemes:
            raise ValueError(f"expected an address such as {example}")
        return given

    return AfterValidator(check)


class DatabaseAt(Section):
    """Where the gateway's tables and its modules' are kept."""

    url: Annotated[
        SecretStr | None, _of("postgresql", "postgres", example="postgresql://gatehouse@db.example.org/gatehouse")
    ] = Field(
        default=None,
        description="PostgreSQL database for all of them (extra `postgres`); SQLite files in data_dir unless given.",
    )
    url_file: Path | None = Field(default=None, description="File that holds the address, with its password.")
    connections: Count = Field(default=10, description="Connections to PostgreSQL that the modules of a process share.")


class BusAt(Section):
    """How several processes tell each other things."""

    url: Annotated[SecretStr | None, _of("redis", "rediss", "unix", example="redis://redis.example.org:6379/0")] = (
        Field(
            default=None,
            description="Redis or Valkey (extra `redis`); one process needs none, several workers or pods do.",
        )
    )
    url_file: Path | None = Field(default=None, description="File that holds the address, with its password.")
    prefix: str = Field(
        default="gatehouse", pattern="[a-z0-9-]{1,32}", description="First word of every key, where others use it too."
    )
