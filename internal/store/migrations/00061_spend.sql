-- +goose Up
-- What requests to models have cost, from the receipts of the hosts. It outlives its host.
CREATE TABLE spend (
    organisation  TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    host          TEXT NOT NULL,
    day           BIGINT NOT NULL, -- its beginning, UTC
    agent         TEXT NOT NULL,
    person        TEXT NOT NULL,
    calls         BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    micro_usd     BIGINT NOT NULL,
    PRIMARY KEY (host, day, agent, person)
);
CREATE INDEX spend_organisation ON spend (organisation, day);

-- What models may cost in a period, on all gateways together.
CREATE TABLE budgets (
    id            TEXT PRIMARY KEY,
    organisation  TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    agent         TEXT NOT NULL,   -- empty: all
    period        TEXT NOT NULL CHECK (period IN ('day', 'month')),
    input_tokens  BIGINT NOT NULL, -- 0: no limit
    output_tokens BIGINT NOT NULL,
    micro_usd     BIGINT NOT NULL,
    person        TEXT NOT NULL,
    created       BIGINT NOT NULL,
    ended         BIGINT NOT NULL,
    ended_by      TEXT NOT NULL
);
CREATE INDEX budgets_organisation ON budgets (organisation, ended);
