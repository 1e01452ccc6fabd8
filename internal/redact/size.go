package redact

// Size returns how many texts have a token, and their bytes: what the table is worth keeping for, and about half of
// the memory that this takes.
func (t *Table) Size() (texts, bytes int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.tokens), t.bytes
}
