package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"
)

// live lists the calls that are under way.
type live struct{ pane pane }

func (s *live) keys() string { return "↑↓ scroll · ! stops everything" }

func (s *live) press(_ *Model, key, _ string) tea.Cmd {
	s.pane.press(key)
	return nil
}

func (s *live) lines(m *Model, w, h int) []string {
	if len(m.now.Calls) == 0 {
		return []string{"", "No call is under way."}
	}
	var lines []string
	for _, c := range m.now.Calls {
		head := m.ink.bold(seen(string(c.Capability))) + "  by " + seen(c.Agent) + "  for " + ago(m.c.now().Sub(c.Since))
		lines = append(lines, cut("  "+head, w),
			cut("    "+m.ink.faint(fmt.Sprintf("over %s · session %s · %s", seen(c.Door), seen(string(c.Session)), seen(string(c.Receipt)))), w))
	}
	return s.pane.view(lines, h)
}
