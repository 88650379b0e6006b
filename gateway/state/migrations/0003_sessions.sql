-- Every write takes the next sequence number, so that a reader asks only for what is new to it.
CREATE TABLE session_facts (
    digest TEXT NOT NULL,
    fact TEXT NOT NULL,
    subject TEXT NOT NULL,
    value TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    sequence BIGINT NOT NULL,
    PRIMARY KEY (digest, fact, subject)
);

CREATE UNIQUE INDEX session_facts_by_sequence ON session_facts (sequence);
CREATE INDEX session_facts_by_expiry ON session_facts (expires_at);

CREATE TABLE session_sequence (last BIGINT NOT NULL);
INSERT INTO session_sequence (last) VALUES (0);
