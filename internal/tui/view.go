package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// View returns the content of the screen: exactly as many lines as the screen has, none wider.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.frameLines(), "\n"))
	v.AltScreen = true
	return v
}

func (m *Model) frameLines() []string {
	w, h := max(m.w, 1), max(m.h, 1)
	head, foot := m.headerLines(w), m.footerLines(w)
	switch {
	case h < 4: // only the content fits
		head, foot = nil, m.overlayLines(w)
	case h < 6 && m.dialog == nil && m.prompt == nil:
		foot = nil
	}
	if len(foot) > h && len(foot) > 2 {
		foot = foot[1:] // the line above a dialog goes first if room is missing
	}
	foot = foot[:min(len(foot), h)]
	head = head[:min(len(head), h-len(foot))]
	room := h - len(head) - len(foot)
	body := m.topScreen().renderLines(m, w, room)
	out := append(head, body[:min(len(body), room)]...)
	for len(out) < h-len(foot) {
		out = append(out, "")
	}
	out = append(out, foot...)
	for n := range out {
		out[n] = truncateLine(out[n], w)
	}
	return out
}

// headerLines shows the screens and important notices.
func (m *Model) headerLines(w int) []string {
	lines := []string{m.tabsLine(w)}
	switch {
	case m.fault != nil:
		lines = append(lines, m.ink.errorText("no gateway answers: "+escapeText(m.fault.Error())+" · r starts one"))
	case m.now.Killed != "":
		lines = append(lines, m.ink.errorText("STOPPED ")+escapeText(m.now.Killed))
	}
	if m.said != "" {
		for n, piece := range wrapWords(escapeText(m.said), w-2) {
			if n == 3 {
				break // the rest can be found in the ledger
			}
			lines = append(lines, m.ink.warningText("» ")+m.ink.bold(piece))
		}
	}
	if m.h < roomy {
		return lines
	}
	return append(lines, "")
}

// roomy is the height from which blank lines separate head, content and foot.
const roomy = 12

// tabsLine returns all tabs, or only the current one if there is little room.
func (m *Model) tabsLine(w int) string {
	var names []string
	for n, name := range tabs {
		if count := m.tabCount(n); count > 0 {
			name += fmt.Sprintf(" (%d)", count)
		}
		name = fmt.Sprintf("%d %s", n+1, name)
		if n == m.tab {
			name = m.ink.reverse("[" + name + "]")
		} else {
			name = " " + name + " "
		}
		names = append(names, name)
	}
	line := m.ink.bold("Bailey") + " " + strings.Join(names, " ")
	if cellWidth(line) > w {
		return m.ink.bold("Bailey") + " " + names[m.tab]
	}
	return line
}

func (m *Model) tabCount(tab int) int {
	switch tabs[tab] {
	case "inbox":
		return len(m.now.Questions)
	case "live":
		return len(m.now.Calls)
	}
	return 0
}

// footerLines returns the dialog or prompt, or the keys of the screen.
func (m *Model) footerLines(w int) []string {
	if over := m.overlayLines(w); over != nil {
		return over
	}
	const always = " · ? help · q quit"
	line := m.ink.faint(truncateLine(m.topScreen().keyHelp(), w-cellWidth(always)) + always)
	if m.h < roomy {
		return []string{line}
	}
	return []string{"", line}
}

func (m *Model) overlayLines(w int) []string {
	switch {
	case m.dialog != nil:
		return m.dialog.renderLines(m.ink, w)
	case m.prompt != nil:
		return m.prompt.renderLines(m.ink, w)
	}
	return nil
}

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
