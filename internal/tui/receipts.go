package tui

import (
	"cmp"
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// receiptsScreen lists the receipts that match the search words, page by page.
type receiptsScreen struct {
	words  string
	before []uint64 // start of this page and of those before it; empty on the first page
	page   Receipts
	loaded bool
	err    error
	cursor cursor
}

type receiptsMsg struct {
	words  string
	before []uint64
	page   Receipts
	err    error
}

// loadPage loads a page.
func (s *receiptsScreen) loadPage(m *Model, words string, before []uint64) tea.Cmd {
	var at uint64
	if len(before) > 0 {
		at = before[len(before)-1]
	}
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		page, err := m.c.Look.Receipts(ctx, words, at)
		return receiptsMsg{words, before, page, err}
	})
}

func (s *receiptsScreen) setPage(r receiptsMsg) {
	*s = receiptsScreen{words: r.words, before: r.before, page: r.page, err: r.err, loaded: true}
}

func (s *receiptsScreen) keyHelp() string {
	return "Enter shows it whole · / search · n older · p newer · v verify the ledger · r again"
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
		return m.ctxCmd(func(ctx context.Context) tea.Msg {
			v, err := m.c.Look.Verify(ctx)
			return verdictMsg{v, err}
		})
	case key == "enter" && len(s.page.Rows) > 0:
		id := s.page.Rows[s.cursor.at].ID
		return m.ctxCmd(func(ctx context.Context) tea.Msg {
			lines, err := m.c.Look.Receipt(ctx, id)
			return receiptMsg{id, lines, err}
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
		return append(out, "", "No such receipts.")
	}
	rows := max(1, h-len(out)-1)
	from := s.cursor.firstVisible(len(s.page.Rows), rows)
	for n := from; n < min(len(s.page.Rows), from+rows); n++ {
		out = append(out, s.page.Rows[n].rowText(m.ink, n == s.cursor.at, w))
	}
	if s.page.Next > 0 {
		out = append(out, m.ink.faint("there are older ones: n"))
	}
	return out
}

// rowText returns a receipt on one line. A narrow line omits the less important parts.
func (r Receipt) rowText(i textStyler, on bool, w int) string {
	mark := "  "
	if on {
		mark = i.bold("▸ ")
	}
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
	}
	line += status + " " + i.bold(padToWidth(escapeText(string(r.Capability)), 20)) + " " +
		escapeText(cmp.Or(r.Why, string(r.ID)))
	return truncateLine(line, w)
}

type receiptMsg struct {
	id    bailey.ReceiptID
	lines []string
	err   error
}

type verdictMsg struct {
	v   Verdict
	err error
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
