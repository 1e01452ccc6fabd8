package tui

import (
	"cmp"
	"context"
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

func (s *inboxScreen) keyHelp() string { return "↑↓ choose · Enter shows all" }

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
	return renderRows(&s.cursor, s.groups, h/2, func(g questionGroup, on bool) []string { return g.rowLines(m, on, w) })
}

// rowLines returns a group on two lines: the call, and the state that is known without its text.
func (g questionGroup) rowLines(m *Model, on bool, w int) []string {
	q := g[0]
	name := string(q.Call)
	if len(g) > 1 {
		name += fmt.Sprintf(" ×%d", len(g))
	}
	head := m.ink.bold(escapeText(name)) + "  by " + escapeText(q.Agent) + "  " + escapeText(strings.TrimSpace(q.Given))
	return m.ink.twoLines(on, head, q.statusText(m.c.currentTime()), w)
}

// twoLines returns a row of a list: its head, marked if the cursor is on it, and its details.
func (i textStyler) twoLines(on bool, head, details string, w int) []string {
	return []string{truncateLine(i.cursorMark(on)+head, w), truncateLine("    "+i.faint(details), w)}
}

func (i textStyler) cursorMark(on bool) string {
	if on {
		return i.bold("▸ ")
	}
	return "  "
}

// renderRows returns the visible rows of a list, with at most the given number of rows.
func renderRows[T any](c *cursor, list []T, rows int, row func(one T, on bool) []string) (out []string) {
	rows = max(1, rows)
	from := c.firstVisible(len(list), rows)
	for n := from; n < min(len(list), from+rows); n++ {
		out = append(out, row(list[n], n == c.at)...)
	}
	return out
}

// statusText returns the state of a question in a few words.
func (q Question) statusText(now time.Time) string {
	words := "asked " + shortDuration(now.Sub(q.AskedAt)) + " ago · " + shortDuration(q.Expires.Sub(now)) + " left"
	switch {
	case !q.RunBy.IsZero():
		words = "approved, runs when its call is repeated · " + shortDuration(q.RunBy.Sub(now)) + " left"
	case !q.Waits:
		words += " · parked"
	}
	if n := len(q.Answers); n > 0 {
		words += fmt.Sprintf(" · %d of %d approved", n, bailey.Combine(q.Rules).Count)
	}
	return words + " · " + string(q.ID)
}

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
		lines = append(lines, "", "No calls are running.")
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
			truncateLine("  "+m.ink.bold(escapeText(a.Agent))+" in the agent jail of "+escapeText(a.Project)+"  for "+
				shortDuration(m.c.currentTime().Sub(a.Since)), w))
	}
	if len(m.now.Refused) > 0 {
		lines = append(lines, "", "Refused in the agent jail, newest first:")
	}
	for _, r := range slices.Backward(m.now.Refused) {
		lines = append(lines, truncateLine("  "+r.At.Local().Format(time.TimeOnly)+"  "+m.ink.bold(escapeText(r.Agent))+"  "+escapeText(r.Reason), w))
		if r.Hint != "" {
			lines = append(lines, truncateLine("    "+m.ink.faint(escapeText(r.Hint)), w))
		}
	}
	return lines
}

// receiptsScreen lists the receipts that match the search words, page by page.
type receiptsScreen struct {
	words  string
	before []uint64 // start of this page and of those before it; empty on the first page
	page   Receipts
	loaded bool
	err    error
	cursor cursor
}

// loadPage loads a page.
func (s *receiptsScreen) loadPage(m *Model, words string, before []uint64) tea.Cmd {
	var at uint64
	if len(before) > 0 {
		at = before[len(before)-1]
	}
	return load(m, func(ctx context.Context) (Receipts, error) { return m.c.Look.Receipts(ctx, words, at) },
		func(page Receipts, err error) tea.Cmd {
			*s = receiptsScreen{words: words, before: before, page: page, err: err, loaded: true}
			return nil
		})
}

func (s *receiptsScreen) keyHelp() string {
	return "Enter shows all · / search · n older · p newer · v verify the ledger · r reload"
}

func (s *receiptsScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.moveByKey(key, len(s.page.Rows)):
	case key == "/":
		m.prompt = &prompt{title: "Search: a capability, a status, agent=… session=… since=7d until=1d, or a receipt's id", text: s.words, most: mostReason,
			do: func(words string) tea.Cmd { return s.loadPage(m, words, nil) }}
	case key == "n" && s.page.Next > 0:
		return s.loadPage(m, s.words, append(append([]uint64{}, s.before...), s.page.Next))
	case key == "p" && len(s.before) > 0:
		return s.loadPage(m, s.words, s.before[:len(s.before)-1])
	case key == "v":
		m.setNotice("reading the ledger…")
		return load(m, m.c.Look.Verify, func(v Verdict, err error) tea.Cmd {
			title := "The ledger is valid"
			if !v.OK {
				title = "THE LEDGER IS INVALID"
			}
			return m.pushScreen(&textScreen{title: title, body: v.Lines, bad: !v.OK}, err)
		})
	case key == "enter" && len(s.page.Rows) > 0:
		id := s.page.Rows[s.cursor.at].ID
		return load(m, func(ctx context.Context) ([]string, error) { return m.c.Look.Receipt(ctx, id) },
			func(lines []string, err error) tea.Cmd {
				return m.pushScreen(&textScreen{title: "Receipt " + string(id), body: lines}, err)
			})
	}
	return nil
}

func (s *receiptsScreen) renderLines(m *Model, w, h int) []string {
	var out []string
	if s.words != "" {
		out = append(out, truncateLine(m.ink.faint("search: ")+escapeText(s.words), w))
	}
	switch {
	case s.err != nil:
		return append(out, errorLines(m.ink, s.err, w)...)
	case !s.loaded:
		return append(out, "looking…")
	case len(s.page.Rows) == 0:
		return append(out, "", "No matching receipts.")
	}
	column := 20 // for capabilities: as wide as the longest, but at most a third of the screen
	for _, r := range s.page.Rows {
		column = max(column, min(cellWidth(escapeText(string(r.Capability))), w/3))
	}
	out = append(out, renderRows(&s.cursor, s.page.Rows, h-len(out)-1, func(r Receipt, on bool) []string {
		return []string{r.rowText(m.ink, on, w, column)}
	})...)
	if s.page.Next > 0 {
		out = append(out, m.ink.faint("there are older ones: n"))
	}
	return out
}

// rowText returns a receipt on one line. A narrow line omits the less important parts.
func (r Receipt) rowText(i textStyler, on bool, w, column int) string {
	mark := i.cursorMark(on)
	line := mark + i.faint(r.Started.UTC().Format(time.DateTime)) + "  "
	if w < 60 {
		line = mark
	}
	status := padToWidth(escapeText(r.Status), 11)
	switch bailey.Status(r.Status) {
	case bailey.OK:
		status = i.successText(status)
	case bailey.Refused, bailey.Failed, bailey.Killed, bailey.Interrupted:
		status = i.errorText(status)
	default:
		status = i.warningText(status)
	}
	line += status + " " + i.bold(padToWidth(escapeText(string(r.Capability)), column)) + " " +
		escapeText(cmp.Or(r.Why, string(r.ID)))
	return truncateLine(line, w)
}

// textScreen shows text: a receipt, or a verdict.
type textScreen struct {
	title string
	body  []string
	bad   bool
	pane  pane
}

func (s *textScreen) keyHelp() string { return "↑↓ scroll · Escape goes back" }

func (s *textScreen) handleKey(_ *Model, key, _ string) tea.Cmd {
	s.pane.scrollByKey(key)
	return nil
}

func (s *textScreen) renderLines(m *Model, w, h int) []string {
	title := m.ink.bold(escapeText(s.title))
	if s.bad {
		title = m.ink.errorText(escapeText(s.title))
	}
	lines := []string{title, ""}
	for _, line := range s.body {
		lines = append(lines, wrapWords(escapeText(line), w)...)
	}
	return s.pane.visibleLines(lines, h)
}

// grantsScreen lists the standing grants and revokes them.
type grantsScreen struct {
	list   []Grant
	loaded bool
	err    error
	cursor cursor
}

func (s *grantsScreen) loadGrants(m *Model) tea.Cmd { return load(m, m.c.Look.Grants, s.setGrants) }

// setGrants replaces the list. The cursor stays on its grant.
func (s *grantsScreen) setGrants(list []Grant, err error) tea.Cmd {
	var on bailey.GrantID
	if s.cursor.at < len(s.list) {
		on = s.list[s.cursor.at].ID
	}
	s.list, s.err, s.loaded = list, err, true
	s.cursor.clampTo(len(s.list))
	for n, one := range s.list {
		if one.ID == on {
			s.cursor.at = n
		}
	}
	return nil
}

func (s *grantsScreen) keyHelp() string { return "↑↓ choose · x revokes it · r reload" }

func (s *grantsScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.moveByKey(key, len(s.list)):
	case key == "x" && len(s.list) > 0:
		g := s.list[s.cursor.at]
		m.openDialog(&dialog{title: "Revoke the grant of " + string(g.Capability) + " to " + g.Agent + "?",
			details: []string{string(g.ID) + ": calls that it allowed need an approval again."},
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
		return []string{"", "No grants are active."}
	}
	return renderRows(&s.cursor, s.list, h/2, func(g Grant, on bool) []string { return g.rowLines(m, on, w) })
}

func (g Grant) rowLines(m *Model, on bool, w int) []string {
	head := m.ink.bold(escapeText(string(g.Capability))) + "  to " + escapeText(g.Agent) + "  until " +
		g.Until.UTC().Format(time.RFC3339)
	return m.ink.twoLines(on, head, escapeText(g.termsText()), w)
}

func (g Grant) termsText() string {
	return "by " + g.By + " (" + string(g.Level) + ") · lifts " + strings.Join(g.Rules, ", ") + " · " + string(g.ID)
}

// stopScreen is the switch that stops everything.
type stopScreen struct{}

func (s *stopScreen) keyHelp() string { return "s stop everything · u allow calls again" }

func (s *stopScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case key == "s" && m.now.Killed == "":
		m.askStop()
	case key == "u" && m.now.Killed != "":
		m.openDialog(&dialog{title: "Allow calls again?", details: []string{m.now.Killed}, do: func() tea.Cmd { return m.runAction(m.c.Hand.Resume) }})
	}
	return nil
}

// askStop asks for a reason and a confirmation. One key starts it from every screen.
func (m *Model) askStop() {
	m.prompt = &prompt{title: "Stop everything: for which reason? Agents are told.", most: mostReason,
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
		return append(out, "", "u allows calls again, after confirmation.")
	}
	return append([]string{"", "Calls are allowed."},
		wrapWords("s stops everything: every call ends at once, every later one is refused. It asks first.", w)...)
}
