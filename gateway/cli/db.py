"""`gatehouse db`: applies database migrations before a new version of the gateway starts."""

import asyncio
import importlib
import json
from pathlib import Path

from gateway.cli.failure import CommandError, explain_system_errors
from gateway.cli.load_settings import add_module_paths, read_settings_leniently
from gateway.cli.progress import ProgressBar
from gateway.contract import Manifest
from gateway.settings import ModuleBackend, Settings
from gateway.state.database import Database
from gateway.state.stores import SqliteStores, open_stores


def upgrade(config: Path | None, as_json: bool) -> None:
    settings = read_settings_leniently(config)
    add_module_paths(settings)
    with explain_system_errors(settings), ProgressBar("upgrading"):
        applied = asyncio.run(_upgrade(settings))
    if as_json:
        print(json.dumps({"applied": applied}))
        return
    for where, titles in applied.items():
        for title in titles:
            print(f"{where}: {title}")
    if not any(applied.values()):
        print("Nothing to do: the database is up to date.")


async def _upgrade(settings: Settings) -> dict[str, list[str]]:
    """Apply the migrations of the gateway and of each store. Return the titles of those applied."""
    at = settings.database.url
    url = at.get_secret_value() if at is not None else None
    database = await Database.open(settings.data_dir, url)
    await database.close()
    applied = {"gateway": database.applied_migrations}
    if url is not None:
        from gateway.state.audit_postgres import migrate_tables

        applied["audit"] = await migrate_tables(url)
    stores = await open_stores(settings.files_dir / "stores", url, 1)
    try:
        # On SQLite the file of a tenant is migrated when it is first opened.
        if not isinstance(stores, SqliteStores):
            for store, migrations in _stores(settings).items():
                applied[store] = await stores.upgrade(store, migrations)
    finally:
        await stores.close()
    return applied


def _stores(settings: Settings) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for namespace, backend in settings.backends.items():
        if not isinstance(backend, ModuleBackend) or not backend.enabled:
            continue
        module, _ = backend.target
        try:
            manifest = getattr(importlib.import_module(module), "manifest", None)
        except Exception as exc:  # a module may raise anything while it is imported
            raise CommandError(f"backends.{namespace}: {module} cannot be imported: {exc}") from exc
        if isinstance(manifest, Manifest) and manifest.migrations is not None:
            found[manifest.store or namespace] = manifest.migrations
    return found
