-- +goose Up
-- Browsers that are told of questions by web push. The keys are the browser's: they encrypt, and open nothing.
CREATE TABLE push_subscriptions (
    id       TEXT PRIMARY KEY,
    account  TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    endpoint TEXT NOT NULL UNIQUE,
    p256dh   TEXT NOT NULL,
    auth     TEXT NOT NULL,
    client   TEXT NOT NULL,
    created  BIGINT NOT NULL
);
CREATE INDEX push_subscriptions_account ON push_subscriptions (account);
