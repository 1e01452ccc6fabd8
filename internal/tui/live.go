package tui

import (
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
)

// liveScreen lists the current calls, and the agents in agent jails with the requests that they were refused.
type liveScreen struct{ pane pane }

func (s *liveScreen) keyHelp() string { return "↑↓ scroll · ! stops everything" }

func (s *liveScreen) handleKey(_ *Model, key, _ string) tea.Cmd {
	s.pane.scrollByKey(key)
	return nil
}

func (s *liveScreen) renderLines(m *Model, w, h int) []string {
	var lines []string
	if len(m.now.Calls) == 0 {
		lines = append(lines, "", "No call is under way.")
	}
	for _, c := range m.now.Calls {
		head := m.ink.bold(escapeText(string(c.Capability))) + "  by " + escapeText(c.Agent) + "  for " +
			shortDuration(m.c.currentTime().Sub(c.Since))
		lines = append(lines, truncateLine("  "+head, w),
			truncateLine("    "+
				m.ink.faint(fmt.Sprintf("over %s · session %s · %s", escapeText(c.Door), escapeText(string(c.Session)),
					escapeText(string(c.Receipt)))), w))
	}
	lines = append(lines, m.jailLines(w)...)
	return s.pane.visibleLines(lines, h)
}

// jailLines lists the agent jails and then the refusals, newest first, because the latest event matters most.
func (m *Model) jailLines(w int) (lines []string) {
	for _, a := range m.now.Walls {
		lines = append(lines, "",
			truncateLine("  "+m.ink.bold(escapeText(a.Agent))+" inside the wall of "+escapeText(a.Project)+"  for "+
				shortDuration(m.c.currentTime().Sub(a.Since)), w))
	}
	if len(m.now.Refused) > 0 {
		lines = append(lines, "", "Refused inside the wall, the newest first:")
	}
	for _, r := range slices.Backward(m.now.Refused) {
		lines = append(lines, truncateLine("  "+r.At.Local().Format(time.TimeOnly)+"  "+m.ink.bold(escapeText(r.Agent))+"  "+escapeText(r.Reason), w))
		if r.Hint != "" {
			lines = append(lines, truncateLine("    "+m.ink.faint(escapeText(r.Hint)), w))
		}
	}
	return lines
}
