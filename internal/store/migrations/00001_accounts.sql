-- +goose Up
-- The same statements serve SQLite and PostgreSQL. Times are microseconds since 1970, 0 means never. Hashes are SHA-256
-- in hexadecimal: no value that lets anyone in is stored, apart from bcrypt's hash of a password.
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE accounts (
    id       TEXT PRIMARY KEY,
    email    TEXT NOT NULL UNIQUE, -- in lower case
    name     TEXT NOT NULL,
    password TEXT NOT NULL,        -- bcrypt
    created  BIGINT NOT NULL
);

CREATE TABLE sessions (
    id      TEXT PRIMARY KEY,
    account TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    hash    TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL,
    seen    BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    address TEXT NOT NULL,
    client  TEXT NOT NULL
);
CREATE INDEX sessions_account ON sessions (account);

CREATE TABLE organisations (
    id      TEXT PRIMARY KEY,
    name    TEXT NOT NULL,
    created BIGINT NOT NULL
);

CREATE TABLE members (
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    account      TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    role         INTEGER NOT NULL CHECK (role BETWEEN 1 AND 3),
    created      BIGINT NOT NULL,
    PRIMARY KEY (organisation, account)
);
CREATE INDEX members_account ON members (account);

CREATE TABLE invitations (
    id           TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    email        TEXT NOT NULL,
    role         INTEGER NOT NULL CHECK (role BETWEEN 1 AND 3),
    inviter      TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    hash         TEXT NOT NULL UNIQUE,
    created      BIGINT NOT NULL,
    expires      BIGINT NOT NULL
);
CREATE INDEX invitations_organisation ON invitations (organisation);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    account      TEXT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    role         INTEGER NOT NULL CHECK (role BETWEEN 1 AND 3),
    hash         TEXT NOT NULL UNIQUE,
    created      BIGINT NOT NULL,
    used         BIGINT NOT NULL,
    expires      BIGINT NOT NULL
);
CREATE INDEX tokens_organisation ON tokens (organisation);

CREATE TABLE hosts (
    id           TEXT PRIMARY KEY,
    organisation TEXT NOT NULL REFERENCES organisations (id) ON DELETE CASCADE,
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('gateway', 'host')),
    hash         TEXT NOT NULL UNIQUE,
    created      BIGINT NOT NULL,
    used         BIGINT NOT NULL,
    expires      BIGINT NOT NULL,
    UNIQUE (organisation, name)
);
