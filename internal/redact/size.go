package redact

// Size returns how many texts have a token, and their total bytes. The number shows whether the table is worth keeping;
// the bytes are about half of its memory.
func (t *Table) Size() (texts, bytes int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.tokens), t.bytes
}
