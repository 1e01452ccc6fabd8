-- +goose Up
-- Times are microseconds since 1970, 0 means never. Numbers of entries count from 1.
ALTER TABLE hosts ADD COLUMN queue TEXT NOT NULL DEFAULT '';        -- the host's queue of events
ALTER TABLE hosts ADD COLUMN acked BIGINT NOT NULL DEFAULT 0;       -- the last event of that queue
ALTER TABLE hosts ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE hosts ADD COLUMN registration TEXT NOT NULL DEFAULT ''; -- JSON

CREATE TABLE commands (
    id       TEXT PRIMARY KEY,
    host     TEXT NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    kind     TEXT NOT NULL,
    body     TEXT NOT NULL,
    created  BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    done     BIGINT NOT NULL, -- 0 while there is no result
    result   TEXT NOT NULL,
    fault    TEXT NOT NULL    -- JSON, empty without an error
);
CREATE INDEX commands_host ON commands (host, done);

-- A ledger outlives its host: removing a host removes its token, not what it has recorded.
CREATE TABLE ledgers (
    host         TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,  -- of the host
    origin       TEXT NOT NULL,
    first_key    TEXT NOT NULL,  -- the key of its first registration
    keys         TEXT NOT NULL,  -- the data of its key entries, a JSON array
    size         BIGINT NOT NULL,
    head         TEXT NOT NULL,  -- the hash of the last entry
    edge         TEXT NOT NULL,  -- of the Merkle tree, JSON
    segment      BIGINT NOT NULL,
    checkpoint   TEXT NOT NULL,  -- the last one, with the cosignature
    signed       BIGINT NOT NULL,-- its size
    forked       BIGINT NOT NULL -- when, 0 if it never was
);
CREATE INDEX ledgers_organisation ON ledgers (organisation);

CREATE TABLE forks (
    id       TEXT PRIMARY KEY,
    host     TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    found    BIGINT NOT NULL,
    reason   TEXT NOT NULL,
    evidence TEXT NOT NULL
);
CREATE INDEX forks_host ON forks (host);

CREATE TABLE entries (
    host    TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    seq     BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    line    TEXT NOT NULL,
    PRIMARY KEY (host, seq)
);
CREATE INDEX entries_kind ON entries (host, kind);

CREATE TABLE receipts (
    host         TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    seq          BIGINT NOT NULL, -- of the intent
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    receipt      TEXT NOT NULL,
    started      BIGINT NOT NULL,
    outcome      BIGINT NOT NULL, -- the entry of the outcome, 0 while it is open
    status       TEXT NOT NULL,
    agent        TEXT NOT NULL,
    session      TEXT NOT NULL,
    capability   TEXT NOT NULL,
    PRIMARY KEY (host, seq)
);
CREATE UNIQUE INDEX receipts_receipt ON receipts (host, receipt);
CREATE INDEX receipts_started ON receipts (organisation, started, host, seq);
CREATE INDEX receipts_agent ON receipts (organisation, agent, started);
CREATE INDEX receipts_capability ON receipts (organisation, capability, started);
CREATE INDEX receipts_session ON receipts (organisation, session, started);
CREATE INDEX receipts_status ON receipts (organisation, status, started);
CREATE INDEX receipts_id ON receipts (organisation, receipt);
