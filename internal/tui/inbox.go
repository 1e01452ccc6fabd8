package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// questionGroup contains questions about the same call, newest first.
type questionGroup []Question

// groupQuestions groups similar questions. The group with the newest question comes first.
func groupQuestions(list []Question) []questionGroup {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Question) int { return b.AskedAt.Compare(a.AskedAt) })
	var groups []questionGroup
	at := map[string]int{}
	for _, q := range list {
		key := q.Alike
		if key == "" {
			key = "id " + string(q.ID)
		}
		n, ok := at[key]
		if !ok {
			n = len(groups)
			at[key] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], q)
	}
	return groups
}

// inboxScreen lists the questions that wait for a person.
type inboxScreen struct {
	groups []questionGroup
	on     bailey.ApprovalID // newest of the selected group, so that the cursor stays on it when rows come and go
	cursor cursor
}

// setQuestions replaces the list. The cursor stays on its question, wherever that is now.
func (s *inboxScreen) setQuestions(list []Question) {
	s.groups = groupQuestions(list)
	s.cursor.clampTo(len(s.groups))
	for n, g := range s.groups {
		if slices.ContainsFunc(g, func(q Question) bool { return q.ID == s.on }) {
			s.cursor.at = n
		}
	}
	s.rememberSelection()
}

func (s *inboxScreen) rememberSelection() {
	if s.on = ""; len(s.groups) > 0 {
		s.on = s.groups[s.cursor.at][0].ID
	}
}

func (s *inboxScreen) keyHelp() string { return "↑↓ choose · Enter shows it whole" }

func (s *inboxScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.moveByKey(key, len(s.groups)):
		s.rememberSelection()
	case key == "enter" && len(s.groups) > 0:
		return m.loadQuestion(s.groups[s.cursor.at][0].ID)
	}
	return nil
}

func (s *inboxScreen) renderLines(m *Model, w, h int) []string {
	if len(s.groups) == 0 {
		return []string{"", "Nothing waits for you."}
	}
	var out []string
	rows := max(1, h/2)
	from := s.cursor.firstVisible(len(s.groups), rows)
	for n := from; n < min(len(s.groups), from+rows); n++ {
		out = append(out, s.groups[n].rowLines(m, n == s.cursor.at, w)...)
	}
	return out
}

// rowLines returns a group on two lines: the call, and the state that is known without its text.
func (g questionGroup) rowLines(m *Model, on bool, w int) []string {
	q, mark := g[0], "  "
	name := string(q.Call)
	if len(g) > 1 {
		name += fmt.Sprintf(" ×%d", len(g))
	}
	if on {
		mark = m.ink.bold("▸ ")
	}
	head := m.ink.bold(escapeText(name)) + "  by " + escapeText(q.Agent) + "  " + escapeText(strings.TrimSpace(q.Given))
	return []string{truncateLine(mark+head, w), truncateLine("    "+m.ink.faint(q.statusText(m.c.currentTime())), w)}
}

// statusText returns the state of a question in a few words.
func (q Question) statusText(now time.Time) string {
	words := "asked " + shortDuration(now.Sub(q.AskedAt)) + " ago · " + shortDuration(q.Expires.Sub(now)) + " left"
	switch {
	case !q.RunBy.IsZero():
		words = "granted, runs when its call comes again · " + shortDuration(q.RunBy.Sub(now)) + " left"
	case !q.Waits:
		words += " · parked"
	}
	if n := len(q.Answers); n > 0 {
		words += fmt.Sprintf(" · %d of %d granted", n, bailey.Combine(q.Rules).Count)
	}
	return words + " · " + string(q.ID)
}
