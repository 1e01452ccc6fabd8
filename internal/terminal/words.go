package terminal

// TableCell returns a text for a table: escaped, and cut so that one row does not widen the column.
func TableCell(s string) string {
	const most = 64
	s = Shown(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
