"""The full-text tables of SQLite and the triggers that keep them: each holds exactly the living rows."""

from typing import Final


def _kept(index: str, table: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """Triggers for rows that come, change, are deleted and come back."""
    names = ", ".join(columns)
    old, new = (", ".join(f"{which}.{name}" for name in columns) for which in ("old", "new"))
    differs = " OR ".join(f"old.{name} IS NOT new.{name}" for name in columns)
    added = f"INSERT INTO {index} (rowid, {names}) SELECT new.number, {new} WHERE new.deleted_at IS NULL;"
    given = f"INSERT INTO {index} ({index}, rowid, {names})"
    removed = f"{given} SELECT 'delete', old.number, {old} WHERE old.deleted_at IS NULL;"
    return (
        f"CREATE TRIGGER IF NOT EXISTS {index}_added AFTER INSERT ON {table} BEGIN {added} END",
        f"CREATE TRIGGER IF NOT EXISTS {index}_changed AFTER UPDATE ON {table}"
        f" WHEN {differs} OR (old.deleted_at IS NULL) <> (new.deleted_at IS NULL) BEGIN {removed} {added} END",
    )


SCHEMA: Final = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS entry_words USING fts5("
    "topic, content, tags, content='entries', content_rowid='number', tokenize='unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE IF NOT EXISTS triple_parts USING fts5(subject_key, predicate_key, object_key,"
    " content='triples', content_rowid='number', tokenize='trigram case_sensitive 1', detail=column)",
    # A word of the topic says most of what an entry is about, then a tag.
    "INSERT INTO entry_words (entry_words, rank) VALUES ('rank', 'bm25(4.0, 1.0, 2.0)')",
    *_kept("entry_words", "entries", ("topic", "content", "tags")),
    *_kept("triple_parts", "triples", ("subject_key", "predicate_key", "object_key")),
)
