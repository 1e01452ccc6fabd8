package tui

import (
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
)

// live lists the current calls, and the agents in agent jails with the requests that they were refused.
type live struct{ pane pane }

func (s *live) keys() string { return "↑↓ scroll · ! stops everything" }

func (s *live) press(_ *Model, key, _ string) tea.Cmd {
	s.pane.press(key)
	return nil
}

func (s *live) lines(m *Model, w, h int) []string {
	var lines []string
	if len(m.now.Calls) == 0 {
		lines = append(lines, "", "No call is under way.")
	}
	for _, c := range m.now.Calls {
		head := m.ink.bold(seen(string(c.Capability))) + "  by " + seen(c.Agent) + "  for " + ago(m.c.now().Sub(c.Since))
		lines = append(lines, cut("  "+head, w),
			cut("    "+m.ink.faint(fmt.Sprintf("over %s · session %s · %s", seen(c.Door), seen(string(c.Session)), seen(string(c.Receipt)))), w))
	}
	lines = append(lines, m.walls(w)...)
	return s.pane.view(lines, h)
}

// walls lists the agent jails and then the refusals, newest first, because the latest event matters most.
func (m *Model) walls(w int) (lines []string) {
	for _, a := range m.now.Walls {
		lines = append(lines, "", cut("  "+m.ink.bold(seen(a.Agent))+" inside the wall of "+seen(a.Project)+"  for "+ago(m.c.now().Sub(a.Since)), w))
	}
	if len(m.now.Refused) > 0 {
		lines = append(lines, "", "Refused inside the wall, the newest first:")
	}
	for _, r := range slices.Backward(m.now.Refused) {
		lines = append(lines, cut("  "+r.At.Local().Format(time.TimeOnly)+"  "+m.ink.bold(seen(r.Agent))+"  "+seen(r.Reason), w))
		if r.Hint != "" {
			lines = append(lines, cut("    "+m.ink.faint(seen(r.Hint)), w))
		}
	}
	return lines
}
