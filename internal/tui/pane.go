package tui

// pane scrolls over lines. The zero value is at the top.
type pane struct {
	top, height int // height of the last view
	reached     int // number of lines that were shown, from the top without a gap
}

// visibleLines returns the visible lines: at most h.
func (p *pane) visibleLines(lines []string, h int) []string {
	h = max(h, 0)
	p.height = h
	p.top = max(0, min(p.top, len(lines)-h))
	end := min(len(lines), p.top+h)
	if p.top <= p.reached {
		p.reached = max(p.reached, end)
	}
	return lines[p.top:end]
}

// scrollByKey scrolls, and reports whether the key was a scroll key.
func (p *pane) scrollByKey(key string) bool {
	page := max(1, p.height-1)
	switch key {
	case "up", "k":
		p.top--
	case "down", "j":
		p.top++
	case "pgup", "b":
		p.top -= page
	case "pgdown", "space", "f":
		p.top += page
	case "home":
		p.top = 0
	case "end", "G":
		p.top = 1 << 30
	default:
		return false
	}
	p.top = max(p.top, 0)
	return true
}

// cursor is a position in a list.
type cursor struct{ at int }

// moveByKey moves among n rows, and reports whether the key was a movement key.
func (c *cursor) moveByKey(key string, n int) bool {
	switch key {
	case "up", "k":
		c.at--
	case "down", "j":
		c.at++
	case "pgup":
		c.at -= 10
	case "pgdown":
		c.at += 10
	case "home":
		c.at = 0
	case "end":
		c.at = n
	default:
		return false
	}
	c.clampTo(n)
	return true
}

func (c *cursor) clampTo(n int) { c.at = max(0, min(c.at, n-1)) }

// firstVisible returns the first of h visible rows, so that the cursor's row is among them.
func (c *cursor) firstVisible(n, h int) int {
	if h <= 0 || n <= h {
		return 0
	}
	return max(0, min(c.at-h/2, n-h))
}
