-- +goose Up
-- A ceremony is a sign-in or a registration that has begun; it ends when its row is removed, so that none is repeated.
CREATE TABLE ceremonies (
    hash    TEXT PRIMARY KEY,      -- of the token that the browser has
    kind    TEXT NOT NULL,
    account TEXT NOT NULL,         -- for which it began, or ''
    data    TEXT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE INDEX ceremonies_expires ON ceremonies (expires);

CREATE TABLE passkeys (
    id      TEXT PRIMARY KEY,      -- the credential id, in base64url
    account TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name    TEXT NOT NULL,
    record  TEXT NOT NULL,         -- the public key and what else WebAuthn stores
    uses    BIGINT NOT NULL,       -- the counter of the authenticator
    created BIGINT NOT NULL,
    used    BIGINT NOT NULL
);
CREATE INDEX passkeys_account ON passkeys (account);

CREATE TABLE providers (
    name    TEXT PRIMARY KEY,
    kind    TEXT NOT NULL CHECK (kind IN ('oidc', 'github')),
    issuer  TEXT NOT NULL,
    client  TEXT NOT NULL,
    secret  TEXT NOT NULL,         -- sealed with a key that the database does not have
    created BIGINT NOT NULL
);

CREATE TABLE identities (
    id       TEXT PRIMARY KEY,
    account  TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    provider TEXT NOT NULL REFERENCES providers (name) ON DELETE CASCADE,
    subject  TEXT NOT NULL,
    email    TEXT NOT NULL,
    created  BIGINT NOT NULL,
    UNIQUE (provider, subject)
);
CREATE INDEX identities_account ON identities (account);
