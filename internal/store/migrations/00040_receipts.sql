-- +goose Up
-- What lists of receipts show and search. The server reads the entries of receipts with indexed = 0 once more.
ALTER TABLE receipts ADD COLUMN indexed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE receipts ADD COLUMN decision TEXT NOT NULL DEFAULT '';
ALTER TABLE receipts ADD COLUMN person TEXT NOT NULL DEFAULT '';
ALTER TABLE receipts ADD COLUMN ended BIGINT NOT NULL DEFAULT 0;
ALTER TABLE receipts ADD COLUMN search TEXT NOT NULL DEFAULT ''; -- in lower case
-- Each has the whole order of the lists: SQLite takes an index that selects better and does not order for the worse one.
DROP INDEX receipts_agent;
DROP INDEX receipts_capability;
DROP INDEX receipts_session;
DROP INDEX receipts_status;
CREATE INDEX receipts_agent ON receipts (organisation, agent, started, host, seq);
CREATE INDEX receipts_capability ON receipts (organisation, capability, started, host, seq);
CREATE INDEX receipts_session ON receipts (organisation, session, started, host, seq);
CREATE INDEX receipts_status ON receipts (organisation, status, started, host, seq);
CREATE INDEX receipts_decision ON receipts (organisation, decision, started, host, seq);
CREATE INDEX receipts_host ON receipts (organisation, host, started, seq);
CREATE INDEX receipts_unread ON receipts (host, seq) WHERE indexed = 0;

-- The sessions of agents, counted from the receipts. Costs are millionths of a US dollar.
CREATE TABLE agent_sessions (
    host          TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    session       TEXT NOT NULL,
    organisation  TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    agent         TEXT NOT NULL,
    person        TEXT NOT NULL,
    started       BIGINT NOT NULL,
    last          BIGINT NOT NULL, -- when its last call began or ended
    calls         BIGINT NOT NULL,
    ended         BIGINT NOT NULL, -- calls that have an outcome
    denied        BIGINT NOT NULL,
    asked         BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    models        BIGINT NOT NULL, -- requests to models
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    micro_usd     BIGINT NOT NULL,
    PRIMARY KEY (host, session)
);
CREATE INDEX agent_sessions_last ON agent_sessions (organisation, last, host, session);
CREATE INDEX agent_sessions_agent ON agent_sessions (organisation, agent, last);
CREATE INDEX agent_sessions_name ON agent_sessions (organisation, session);

-- The plans of jails by their digest.
CREATE TABLE plans (
    host   TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    seq    BIGINT NOT NULL,
    PRIMARY KEY (host, digest)
);

-- The roots of the full subtrees of 256 entries of each Merkle tree, numbered from 0. Proofs begin from them.
CREATE TABLE subtrees (
    host   TEXT NOT NULL REFERENCES ledgers (host) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    hash   TEXT NOT NULL,
    PRIMARY KEY (host, number)
);
