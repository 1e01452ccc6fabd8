package tui

import (
	"cmp"
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// receipts lists the receipts that match the search words, page by page.
type receipts struct {
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

// load loads a page.
func (s *receipts) load(m *Model, words string, before []uint64) tea.Cmd {
	var at uint64
	if len(before) > 0 {
		at = before[len(before)-1]
	}
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		page, err := m.c.Look.Receipts(ctx, words, at)
		return receiptsMsg{words, before, page, err}
	})
}

func (s *receipts) set(r receiptsMsg) {
	*s = receipts{words: r.words, before: r.before, page: r.page, err: r.err, loaded: true}
}

func (s *receipts) keys() string {
	return "Enter shows it whole · / search · n older · p newer · v verify the ledger · r again"
}

func (s *receipts) press(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.cursor.press(key, len(s.page.Rows)):
	case key == "/":
		m.prompt = &prompt{title: "Search: a capability, a status, agent=… session=… since=7d until=1d, or a receipt's id", text: s.words, most: mostReason,
			do: func(words string) tea.Cmd { return s.load(m, words, nil) }}
	case key == "n" && s.page.Next > 0:
		return s.load(m, s.words, append(append([]uint64{}, s.before...), s.page.Next))
	case key == "p" && len(s.before) > 0:
		return s.load(m, s.words, s.before[:len(s.before)-1])
	case key == "v":
		m.say("reading the ledger…")
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

func (s *receipts) lines(m *Model, w, h int) []string {
	var out []string
	if s.words != "" {
		out = append(out, cut(m.ink.faint("search: ")+seen(s.words), w))
	}
	switch {
	case s.err != nil:
		return append(out, complaint(m.ink, s.err, w)...)
	case !s.loaded:
		return append(out, "looking…")
	case len(s.page.Rows) == 0:
		return append(out, "", "No such receipts.")
	}
	rows := max(1, h-len(out)-1)
	from := s.cursor.window(len(s.page.Rows), rows)
	for n := from; n < min(len(s.page.Rows), from+rows); n++ {
		out = append(out, s.page.Rows[n].row(m.ink, n == s.cursor.at, w))
	}
	if s.page.Next > 0 {
		out = append(out, m.ink.faint("there are older ones: n"))
	}
	return out
}

// row returns a receipt on one line. A narrow line omits the less important parts.
func (r Receipt) row(i ink, on bool, w int) string {
	mark := "  "
	if on {
		mark = i.bold("▸ ")
	}
	line := mark + i.faint(r.Started.UTC().Format(time.DateTime)) + "  "
	if w < 60 {
		line = mark
	}
	status := pad(seen(r.Status), 11)
	switch bailey.Status(r.Status) {
	case bailey.OK:
		status = i.good(status)
	case bailey.Refused, bailey.Failed, bailey.Killed, bailey.Interrupted:
		status = i.bad(status)
	}
	line += status + " " + i.bold(pad(seen(string(r.Capability)), 20)) + " " + seen(cmp.Or(r.Why, string(r.ID)))
	return cut(line, w)
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

// page shows text: a receipt, or a verdict.
type page struct {
	title string
	body  []string
	bad   bool
	pane  pane
}

func (s *page) keys() string { return "↑↓ scroll · Escape goes back" }

func (s *page) press(_ *Model, key, _ string) tea.Cmd {
	s.pane.press(key)
	return nil
}

func (s *page) lines(m *Model, w, h int) []string {
	title := m.ink.bold(seen(s.title))
	if s.bad {
		title = m.ink.bad(seen(s.title))
	}
	lines := []string{title, ""}
	for _, line := range s.body {
		lines = append(lines, prose(seen(line), w)...)
	}
	return s.pane.view(lines, h)
}
