package tui

import (
	"context"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// grantsScreen lists the standing grants and revokes them.
type grantsScreen struct {
	list   []Grant
	loaded bool
	err    error
	cursor cursor
}

type grantsMsg struct {
	list []Grant
	err  error
}

func (s *grantsScreen) loadGrants(m *Model) tea.Cmd {
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		list, err := m.c.Look.Grants(ctx)
		return grantsMsg{list, err}
	})
}

// setGrants replaces the list. The cursor stays on its grant.
func (s *grantsScreen) setGrants(g grantsMsg) {
	var on bailey.GrantID
	if s.cursor.at < len(s.list) {
		on = s.list[s.cursor.at].ID
	}
	s.list, s.err, s.loaded = g.list, g.err, true
	s.cursor.clampTo(len(s.list))
	for n, one := range s.list {
		if one.ID == on {
			s.cursor.at = n
		}
	}
}

func (s *grantsScreen) keyHelp() string { return "↑↓ choose · x revokes it · r again" }

func (s *grantsScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.moveByKey(key, len(s.list)):
	case key == "x" && len(s.list) > 0:
		g := s.list[s.cursor.at]
		m.openDialog(&dialog{title: "Revoke the grant of " + string(g.Capability) + " to " + g.Agent + "?",
			details: []string{string(g.ID) + ": calls that it let through are asked about again."},
			do: func() tea.Cmd {
				return m.runAction(func(ctx context.Context) (string, error) { return m.c.Hand.Revoke(ctx, g.ID) })
			}})
	}
	return nil
}

func (s *grantsScreen) renderLines(m *Model, w, h int) []string {
	switch {
	case s.err != nil:
		return errorLines(m.ink, s.err, w)
	case !s.loaded:
		return []string{"looking…"}
	case len(s.list) == 0:
		return []string{"", "No grant stands."}
	}
	var out []string
	rows := max(1, h/2)
	from := s.cursor.firstVisible(len(s.list), rows)
	for n := from; n < min(len(s.list), from+rows); n++ {
		out = append(out, s.list[n].rowLines(m, n == s.cursor.at, w)...)
	}
	return out
}

func (g Grant) rowLines(m *Model, on bool, w int) []string {
	mark := "  "
	if on {
		mark = m.ink.bold("▸ ")
	}
	head := m.ink.bold(escapeText(string(g.Capability))) + "  to " + escapeText(g.Agent) + "  until " +
		g.Until.UTC().Format(time.RFC3339)
	return []string{truncateLine(mark+head, w), truncateLine("    "+m.ink.faint(escapeText(g.termsText())), w)}
}

func (g Grant) termsText() string {
	return "by " + g.By + " (" + string(g.Level) + ") · lifts " + strings.Join(g.Rules, ", ") + " · " + string(g.ID)
}
