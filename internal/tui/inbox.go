package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// group contains questions about the same call, newest first.
type group []Question

// grouped groups similar questions. The group with the newest question comes first.
func grouped(list []Question) []group {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Question) int { return b.AskedAt.Compare(a.AskedAt) })
	var groups []group
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

// inbox lists the questions that wait for a person.
type inbox struct {
	groups []group
	on     bailey.ApprovalID // newest of the selected group, so that the cursor stays on it when rows come and go
	cursor cursor
}

// set replaces the list. The cursor stays on its question, wherever that is now.
func (s *inbox) set(list []Question) {
	s.groups = grouped(list)
	s.cursor.clamp(len(s.groups))
	for n, g := range s.groups {
		if slices.ContainsFunc(g, func(q Question) bool { return q.ID == s.on }) {
			s.cursor.at = n
		}
	}
	s.mark()
}

func (s *inbox) mark() {
	if s.on = ""; len(s.groups) > 0 {
		s.on = s.groups[s.cursor.at][0].ID
	}
}

func (s *inbox) keys() string { return "↑↓ choose · Enter shows it whole" }

func (s *inbox) press(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.press(key, len(s.groups)):
		s.mark()
	case key == "enter" && len(s.groups) > 0:
		return m.open(s.groups[s.cursor.at][0].ID)
	}
	return nil
}

func (s *inbox) lines(m *Model, w, h int) []string {
	if len(s.groups) == 0 {
		return []string{"", "Nothing waits for you."}
	}
	var out []string
	rows := max(1, h/2)
	from := s.cursor.window(len(s.groups), rows)
	for n := from; n < min(len(s.groups), from+rows); n++ {
		out = append(out, s.groups[n].row(m, n == s.cursor.at, w)...)
	}
	return out
}

// row returns a group on two lines: the call, and the state that is known without its text.
func (g group) row(m *Model, on bool, w int) []string {
	q, mark := g[0], "  "
	name := string(q.Call)
	if len(g) > 1 {
		name += fmt.Sprintf(" ×%d", len(g))
	}
	if on {
		mark = m.ink.bold("▸ ")
	}
	head := m.ink.bold(seen(name)) + "  by " + seen(q.Agent) + "  " + seen(strings.TrimSpace(q.Given))
	return []string{cut(mark+head, w), cut("    "+m.ink.faint(q.short(m.c.now())), w)}
}

// short returns the state of a question in a few words.
func (q Question) short(now time.Time) string {
	words := "asked " + ago(now.Sub(q.AskedAt)) + " ago · " + ago(q.Expires.Sub(now)) + " left"
	switch {
	case !q.RunBy.IsZero():
		words = "granted, runs when its call comes again · " + ago(q.RunBy.Sub(now)) + " left"
	case !q.Waits:
		words += " · parked"
	}
	if n := len(q.Answers); n > 0 {
		words += fmt.Sprintf(" · %d of %d granted", n, bailey.Combine(q.Rules).Count)
	}
	return words + " · " + string(q.ID)
}
