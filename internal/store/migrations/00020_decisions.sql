-- +goose Up
-- A question of a gateway. The text is what an answer binds; the body has what lists show, as JSON.
CREATE TABLE questions (
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    id           TEXT NOT NULL,
    host         TEXT NOT NULL REFERENCES hosts (id) ON DELETE CASCADE,
    body         TEXT NOT NULL,
    asked        BIGINT NOT NULL,
    expires      BIGINT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('open', 'granted', 'denied')),
    reason       TEXT NOT NULL,
    decided      BIGINT NOT NULL,
    PRIMARY KEY (organisation, id)
);
CREATE INDEX questions_asked ON questions (organisation, state, asked);

-- What is stopped: an agent or everything, on a host or on all. The revision grows with each change.
CREATE TABLE stops (
    id           TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    host         TEXT NOT NULL, -- empty: all
    agent        TEXT NOT NULL, -- empty: everything
    reason       TEXT NOT NULL,
    person       TEXT NOT NULL,
    created      BIGINT NOT NULL,
    ended        BIGINT NOT NULL,
    ended_by     TEXT NOT NULL
);
CREATE INDEX stops_organisation ON stops (organisation, ended);

CREATE TABLE revisions (
    organisation TEXT PRIMARY KEY REFERENCES organisations (id) ON DELETE CASCADE,
    revision     BIGINT NOT NULL
);

-- Signed policies. The server cannot change them: a gateway verifies the signature.
CREATE TABLE bundles (
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    serial       BIGINT NOT NULL,
    body         TEXT NOT NULL, -- JSON, as gateways get it
    hosts        TEXT NOT NULL, -- JSON list of ids; empty: all gateways
    person       TEXT NOT NULL,
    created      BIGINT NOT NULL,
    PRIMARY KEY (organisation, serial)
);

CREATE TABLE bundle_states (
    host    TEXT PRIMARY KEY REFERENCES hosts (id) ON DELETE CASCADE,
    body    TEXT NOT NULL, -- JSON, as the gateway reported it
    changed BIGINT NOT NULL
);
