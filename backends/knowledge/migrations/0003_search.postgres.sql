-- Words as they are compared: without case, accents and signs.
CREATE FUNCTION plain_words(given TEXT) RETURNS TEXT LANGUAGE SQL IMMUTABLE STRICT RETURN
  regexp_replace(regexp_replace(normalize(lower(given), NFKD), '[\u0300-\u036F]', '', 'g'), '[[:punct:]]+', ' ', 'g');

-- No index over it: row-level security would keep the planner from using one, and a tenant's rows are few.
-- A word of the topic says most of what an entry is about, then a tag.
ALTER TABLE entries ADD COLUMN words TSVECTOR GENERATED ALWAYS AS (
  setweight(to_tsvector('simple', plain_words(topic)), 'A')
  || setweight(to_tsvector('simple', plain_words(tags)), 'B')
  || setweight(to_tsvector('simple', plain_words(content)), 'D')
) STORED;
