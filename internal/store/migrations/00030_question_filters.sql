-- +goose Up
-- By whom and for which capability a question is asked, for lists. Questions from before this version have neither.
ALTER TABLE questions ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE questions ADD COLUMN capability TEXT NOT NULL DEFAULT '';
