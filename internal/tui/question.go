package tui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// sheet is a view of a question, with the number of lines when it was last shown.
type sheet struct {
	pane
	total int
}

// question shows one complete question and accepts an answer.
type question struct {
	q           Question
	last        *Question // previous question about the same capability and agent
	exact       bool      // shows the text itself, as it is signed
	words, text sheet
	gone        bool // it has ended
	sent        bool // an answer is being sent
}

func (s *question) keys() string {
	switch {
	case s.gone:
		return "Escape goes back"
	case !s.q.RunBy.IsZero():
		return "d takes the grant back · t exact text · ↑↓ scroll · Esc back"
	case s.exact:
		return "g grant · d deny · t in words · ↑↓ scroll · Esc back"
	}
	return "g grant · d deny · t exact text · [ ] alike · ↑↓ scroll · Esc back"
}

// refresh updates the question from a list.
func (s *question) refresh(list []Question) {
	n := slices.IndexFunc(list, func(q Question) bool { return q.ID == s.q.ID })
	if s.gone = n < 0; !s.gone {
		s.q.Waits, s.q.RunBy, s.q.Answers = list[n].Waits, list[n].RunBy, list[n].Answers
	}
}

func (s *question) press(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.sheet().press(key):
	case key == "t":
		s.exact = !s.exact
	case key == "[", key == "]":
		return s.step(m, key == "]")
	case key == "g" && s.ready() && s.q.RunBy.IsZero():
		m.ask(s.grant(m))
	case key == "d" && s.ready():
		m.prompt = &prompt{title: "Why not? The agent is told.", most: mostReason, do: func(reason string) tea.Cmd { return m.ask(s.deny(m, reason)) }}
	}
	return nil
}

func (s *question) ready() bool { return !s.gone && !s.sent }

func (s *question) sheet() *sheet {
	if s.exact {
		return &s.text
	}
	return &s.words
}

// unseen returns how many lines were not on the screen yet, in the view where fewer are missing.
func (s *question) unseen() int {
	left := max(0, s.words.total-s.words.reached)
	if s.text.total > 0 {
		left = min(left, max(0, s.text.total-s.text.reached))
	}
	return left
}

// step goes to the newer or the older similar question.
func (s *question) step(m *Model, newer bool) tea.Cmd {
	for _, g := range m.inbox.groups {
		n := slices.IndexFunc(g, func(q Question) bool { return q.ID == s.q.ID })
		if n < 0 {
			continue
		}
		if n++; newer {
			n -= 2
		}
		if n >= 0 && n < len(g) {
			return m.open(g[n].ID)
		}
	}
	return nil
}

func (s *question) lines(m *Model, w, h int) []string {
	lines, p := s.whole(m, w), s.sheet()
	p.total = len(lines)
	if h < 2 || len(lines) <= h {
		return p.view(lines, h)
	}
	out := slices.Clone(p.view(lines, h-1))
	if below := len(lines) - p.top - len(out); below > 0 {
		return append(out, m.ink.warn(fmt.Sprintf("↓ %d more lines", below)))
	}
	return append(out, m.ink.faint("the end"))
}

func (s *question) whole(m *Model, w int) (lines []string) {
	if s.gone {
		lines = append(lines, m.ink.bad("This question is no longer open: it was answered, expired, or its call ended."), "")
	}
	if s.exact {
		for _, line := range block(s.q.Text) {
			lines = append(lines, fold(line, w)...)
		}
		return lines
	}
	lines = append(lines, written(m.ink, s.q.deciding(m.c.now()), w)...)
	lines = append(lines, s.since(m, w)...)
	return append(lines, written(m.ink, s.q.details(), w)...)
}

// since shows the differences from the previous question.
func (s *question) since(m *Model, w int) []string {
	if s.last == nil {
		return nil
	}
	out := []string{"", m.ink.bold("Since the last question about it, " + string(s.last.ID) + ":")}
	changed := difference(s.last.lasting(), s.q.lasting())
	if len(changed) == 0 {
		return append(out, "  nothing but the time, or the session, is different", "")
	}
	for _, line := range changed {
		paint := m.ink.good
		if strings.HasPrefix(line, "-") {
			paint = m.ink.warn
		}
		for n, piece := range fold(line, w-2) {
			if n > 0 {
				piece = "  " + piece
			}
			out = append(out, "  "+paint(piece))
		}
	}
	return append(out, "")
}

// mostReason limits a reason in bytes, as the gateway does.
const mostReason = 400

// grant returns the dialog that asks for confirmation. The answer is for the question as it is shown here, by its
// digest.
func (s *question) grant(m *Model) *dialog {
	want := bailey.Combine(s.q.Rules)
	how := "Your answer is not signed: it counts as local."
	switch {
	case m.c.Sign != nil:
		how = "You sign with " + m.c.Key + ": ssh-keygen asks for what it needs."
	case !bailey.Local.Meets(want.Level):
		how = "Your answer is not signed, and less than it wants: bailey tui --key FILE signs."
	}
	d := &dialog{title: "Grant " + string(s.q.Call) + " to " + s.q.Agent + "?", details: []string{how, "It wants " + wanted(want) + "."}}
	if unseen := s.unseen(); unseen > 0 {
		d.details = append([]string{fmt.Sprintf("You have not seen all of it: %d lines are further down.", unseen)}, d.details...)
	}
	d.do = func() tea.Cmd {
		s.sent = true
		if m.c.Sign == nil {
			return m.act(func(ctx context.Context) (string, error) { return m.c.Hand.Grant(ctx, s.q, "") })
		}
		return m.sign(s.q)
	}
	return d
}

func (s *question) deny(m *Model, reason string) *dialog {
	d := &dialog{title: "Deny " + string(s.q.Call) + " to " + s.q.Agent + "?"}
	if reason != "" {
		d.details = []string{"Because: " + reason}
	}
	d.do = func() tea.Cmd {
		s.sent = true
		return m.act(func(ctx context.Context) (string, error) { return m.c.Hand.Deny(ctx, s.q.ID, reason) })
	}
	return d
}

// signing runs while it has the terminal.
type signing func() error

func (f signing) Run() error        { return f() }
func (signing) SetStdin(io.Reader)  {}
func (signing) SetStdout(io.Writer) {}
func (signing) SetStderr(io.Writer) {}

// sign gives the terminal to the signing program, then answers.
func (m *Model) sign(q Question) tea.Cmd {
	var signature string
	run := signing(func() (err error) { signature, err = m.c.Sign(m.ctx, q.Text); return err })
	return m.lend(run, func(err error) tea.Msg { return signedMsg{q, signature, err} })
}
