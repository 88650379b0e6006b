"""The database of the settings, as every command that opens it itself does."""

from gateway.settings import Settings
from gateway.state.database import Database


async def open_database(settings: Settings) -> Database:
    """PostgreSQL where the settings name one, else the file in the data folder. Raises `Fault(UNAVAILABLE)`."""
    at = settings.database.url
    return await Database.open(settings.data_dir, at.get_secret_value() if at is not None else None)
