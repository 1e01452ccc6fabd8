-- +goose Up
-- What a gateway says that it has and permits: JSON, as it reported it.
CREATE TABLE host_resources (
    host    TEXT PRIMARY KEY REFERENCES hosts (id) ON DELETE CASCADE,
    body    TEXT NOT NULL,
    changed BIGINT NOT NULL
);

-- A call that a person has made on a gateway through the server. It outlives its host.
CREATE TABLE operations (
    id           TEXT PRIMARY KEY, -- "op-" and the id of the command
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    host         TEXT NOT NULL,
    host_name    TEXT NOT NULL,
    sandbox      TEXT NOT NULL,    -- empty without one
    capability   TEXT NOT NULL,
    input        TEXT NOT NULL,    -- JSON
    account      TEXT NOT NULL,
    person       TEXT NOT NULL,    -- the address of the account
    state        TEXT NOT NULL CHECK (state IN ('queued', 'sent', 'running', 'done', 'failed', 'unknown')),
    created      BIGINT NOT NULL,
    sent         BIGINT NOT NULL,
    begun        BIGINT NOT NULL,
    ended        BIGINT NOT NULL,
    deadline     BIGINT NOT NULL,
    receipt      TEXT NOT NULL,    -- in the ledger of the host
    result       TEXT NOT NULL,    -- JSON
    fault        TEXT NOT NULL,    -- JSON, empty without an error
    request_key  TEXT NOT NULL,    -- Idempotency-Key of the request, or empty
    digest       TEXT NOT NULL     -- of the request
);
CREATE INDEX operations_created ON operations (organisation, created, id);
CREATE INDEX operations_open ON operations (state, deadline);
CREATE UNIQUE INDEX operations_key ON operations (organisation, account, request_key) WHERE request_key <> '';

-- Sandboxes that were created through the server. One that may exist holds its share of its host.
CREATE TABLE sandboxes (
    id           TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    host         TEXT NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    machine      TEXT NOT NULL, -- its id at the host, empty until it is there
    name         TEXT NOT NULL,
    image        TEXT NOT NULL,
    network      TEXT NOT NULL,
    cpus         BIGINT NOT NULL,
    memory_mb    BIGINT NOT NULL,
    state        TEXT NOT NULL,
    person       TEXT NOT NULL,
    created      BIGINT NOT NULL,
    expires      BIGINT NOT NULL, -- 0 while that is not known
    seen         BIGINT NOT NULL, -- when the host last said something about it
    operation    TEXT NOT NULL    -- that creates it
);
CREATE INDEX sandboxes_host ON sandboxes (host, state);
CREATE INDEX sandboxes_organisation ON sandboxes (organisation, created);
