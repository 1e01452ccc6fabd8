package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"
)

// stopScreen is the switch that stops everything.
type stopScreen struct{}

func (s *stopScreen) keyHelp() string { return "s stop everything · u carry calls again" }

func (s *stopScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case key == "s" && m.now.Killed == "":
		m.askStop()
	case key == "u" && m.now.Killed != "":
		m.openDialog(&dialog{title: "Carry calls again?", details: []string{m.now.Killed}, do: func() tea.Cmd { return m.runAction(m.c.Hand.Resume) }})
	}
	return nil
}

// askStop asks for a reason and a confirmation. One key starts it from every screen.
func (m *Model) askStop() {
	m.prompt = &prompt{title: "Stop everything: why? Agents are told.", most: mostReason,
		do: func(reason string) tea.Cmd {
			d := &dialog{title: "Stop everything now?",
				details: []string{"Every call ends, and every later one is refused until an operator resumes."}}
			d.do = func() tea.Cmd {
				return m.runAction(func(ctx context.Context) (string, error) { return m.c.Hand.Kill(ctx, reason) })
			}
			return m.openDialog(d)
		}}
}

func (s *stopScreen) renderLines(m *Model, w, _ int) []string {
	if m.now.Killed != "" {
		var out []string
		for _, piece := range wrapWords(escapeText(m.now.Killed), w) {
			out = append(out, m.ink.errorText(piece))
		}
		return append(out, "", "u carries calls again: that asks first.")
	}
	return append([]string{"", "Calls are carried."},
		wrapWords("s stops everything: every call ends at once, every later one is refused. It asks first.", w)...)
}
