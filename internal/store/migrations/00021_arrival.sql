-- +goose Up
-- When a question arrived, by the server's clock. A host chooses the other times of a question.
ALTER TABLE questions ADD COLUMN arrived BIGINT NOT NULL DEFAULT 0;
UPDATE questions SET arrived = asked;
DROP INDEX questions_asked;
CREATE INDEX questions_arrived ON questions (organisation, state, arrived);
CREATE INDEX questions_open ON questions (host, state, expires);
