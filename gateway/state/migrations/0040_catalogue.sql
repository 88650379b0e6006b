-- What each backend listed when it was last read, by whose credential it was read with.
CREATE TABLE catalogue_snapshots (
    namespace TEXT NOT NULL,
    whose TEXT NOT NULL,
    origin TEXT NOT NULL,
    lists TEXT NOT NULL,
    good_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (namespace, whose)
);

-- The digests of each tool's definition, part by part, and its last change.
CREATE TABLE catalogue_pins (
    namespace TEXT NOT NULL,
    whose TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    parts TEXT NOT NULL,
    first_seen DOUBLE PRECISION NOT NULL,
    changed_at DOUBLE PRECISION,
    changed_parts TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (namespace, whose, tool)
);
