-- +goose Up
-- The rules that a gateway uses, as it reported them.
CREATE TABLE policy_states (
    host    TEXT PRIMARY KEY REFERENCES hosts (id) ON DELETE CASCADE,
    body    TEXT NOT NULL, -- JSON
    changed BIGINT NOT NULL
);
