-- The full-text index holds exactly the living rows; these triggers keep it.
CREATE VIRTUAL TABLE IF NOT EXISTS entry_words USING fts5(
  topic, content, tags, content='entries', content_rowid='number', tokenize='unicode61 remove_diacritics 2'
);
-- A word of the topic says most of what an entry is about, then a tag.
INSERT INTO entry_words (entry_words, rank) VALUES ('rank', 'bm25(4.0, 1.0, 2.0)');

CREATE TRIGGER entry_words_added AFTER INSERT ON entries BEGIN
  INSERT INTO entry_words (rowid, topic, content, tags)
    SELECT new.number, new.topic, new.content, new.tags WHERE new.deleted_at IS NULL;
END;
CREATE TRIGGER entry_words_changed AFTER UPDATE ON entries
WHEN old.topic <> new.topic OR old.content <> new.content OR old.tags <> new.tags
  OR (old.deleted_at IS NULL) <> (new.deleted_at IS NULL)
BEGIN
  INSERT INTO entry_words (entry_words, rowid, topic, content, tags)
    SELECT 'delete', old.number, old.topic, old.content, old.tags WHERE old.deleted_at IS NULL;
  INSERT INTO entry_words (rowid, topic, content, tags)
    SELECT new.number, new.topic, new.content, new.tags WHERE new.deleted_at IS NULL;
END;

-- Trigrams, for parts of words.
CREATE VIRTUAL TABLE IF NOT EXISTS triple_parts USING fts5(
  subject_key, predicate_key, object_key,
  content='triples', content_rowid='number', tokenize='trigram case_sensitive 1', detail=column
);

CREATE TRIGGER triple_parts_added AFTER INSERT ON triples BEGIN
  INSERT INTO triple_parts (rowid, subject_key, predicate_key, object_key)
    SELECT new.number, new.subject_key, new.predicate_key, new.object_key WHERE new.deleted_at IS NULL;
END;
CREATE TRIGGER triple_parts_changed AFTER UPDATE ON triples
WHEN old.subject_key <> new.subject_key OR old.predicate_key <> new.predicate_key OR old.object_key <> new.object_key
  OR (old.deleted_at IS NULL) <> (new.deleted_at IS NULL)
BEGIN
  INSERT INTO triple_parts (triple_parts, rowid, subject_key, predicate_key, object_key)
    SELECT 'delete', old.number, old.subject_key, old.predicate_key, old.object_key WHERE old.deleted_at IS NULL;
  INSERT INTO triple_parts (rowid, subject_key, predicate_key, object_key)
    SELECT new.number, new.subject_key, new.predicate_key, new.object_key WHERE new.deleted_at IS NULL;
END;
