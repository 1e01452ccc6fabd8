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

// questionView is a view of a question, with the number of lines when it was last shown.
type questionView struct {
	pane
	total int
}

// questionScreen shows one complete question and accepts an answer.
type questionScreen struct {
	q           Question
	last        *Question // previous question about the same capability and agent
	exact       bool      // shows the text itself, as it is signed
	words, text questionView
	gone        bool // it has ended
	sent        bool // an answer is being sent
}

func (s *questionScreen) keyHelp() string {
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

// updateFrom updates the question from a list.
func (s *questionScreen) updateFrom(list []Question) {
	n := slices.IndexFunc(list, func(q Question) bool { return q.ID == s.q.ID })
	if s.gone = n < 0; !s.gone {
		s.q.Waits, s.q.RunBy, s.q.Answers = list[n].Waits, list[n].RunBy, list[n].Answers
	}
}

func (s *questionScreen) handleKey(m *Model, key, _ string) tea.Cmd {
	switch {
	case s.currentView().scrollByKey(key):
	case key == "t":
		s.exact = !s.exact
	case key == "[", key == "]":
		return s.openSimilar(m, key == "]")
	case key == "g" && s.canAnswer() && s.q.RunBy.IsZero():
		m.openDialog(s.grantDialog(m))
	case key == "d" && s.canAnswer():
		m.prompt = &prompt{title: "Why not? The agent is told.", most: mostReason, do: func(reason string) tea.Cmd { return m.openDialog(s.denyDialog(m, reason)) }}
	}
	return nil
}

func (s *questionScreen) canAnswer() bool { return !s.gone && !s.sent }

func (s *questionScreen) currentView() *questionView {
	if s.exact {
		return &s.text
	}
	return &s.words
}

// unseenLineCount returns how many lines were not on the screen yet, in the view where fewer are missing.
func (s *questionScreen) unseenLineCount() int {
	left := max(0, s.words.total-s.words.reached)
	if s.text.total > 0 {
		left = min(left, max(0, s.text.total-s.text.reached))
	}
	return left
}

// openSimilar goes to the newer or the older similar question.
func (s *questionScreen) openSimilar(m *Model, newer bool) tea.Cmd {
	for _, g := range m.inbox.groups {
		n := slices.IndexFunc(g, func(q Question) bool { return q.ID == s.q.ID })
		if n < 0 {
			continue
		}
		if n++; newer {
			n -= 2
		}
		if n >= 0 && n < len(g) {
			return m.loadQuestion(g[n].ID)
		}
	}
	return nil
}

func (s *questionScreen) renderLines(m *Model, w, h int) []string {
	lines, p := s.questionLines(m, w), s.currentView()
	p.total = len(lines)
	if h < 2 || len(lines) <= h {
		return p.visibleLines(lines, h)
	}
	out := slices.Clone(p.visibleLines(lines, h-1))
	if below := len(lines) - p.top - len(out); below > 0 {
		return append(out, m.ink.warningText(fmt.Sprintf("↓ %d more lines", below)))
	}
	return append(out, m.ink.faint("the end"))
}

func (s *questionScreen) questionLines(m *Model, w int) (lines []string) {
	if s.gone {
		lines = append(lines, m.ink.errorText("This question is no longer open: it was answered, expired, or its call ended."), "")
	}
	if s.exact {
		for _, line := range escapeLines(s.q.Text) {
			lines = append(lines, wrapHard(line, w)...)
		}
		return lines
	}
	lines = append(lines, renderFields(m.ink, s.q.decisionFields(m.c.currentTime()), w)...)
	lines = append(lines, s.changeLines(m, w)...)
	return append(lines, renderFields(m.ink, s.q.detailFields(), w)...)
}

// changeLines shows the differences from the previous question.
func (s *questionScreen) changeLines(m *Model, w int) []string {
	if s.last == nil {
		return nil
	}
	out := []string{"", m.ink.bold("Since the last question about it, " + string(s.last.ID) + ":")}
	changed := diffLines(s.last.comparableLines(), s.q.comparableLines())
	if len(changed) == 0 {
		return append(out, "  nothing but the time, or the session, is different", "")
	}
	for _, line := range changed {
		paint := m.ink.successText
		if strings.HasPrefix(line, "-") {
			paint = m.ink.warningText
		}
		for n, piece := range wrapHard(line, w-2) {
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

// grantDialog returns the dialog that asks for confirmation. The answer is for the question as it is shown here, by its
// digest.
func (s *questionScreen) grantDialog(m *Model) *dialog {
	want := bailey.Combine(s.q.Rules)
	how := "Your answer is not signed: it counts as local."
	switch {
	case m.c.Sign != nil:
		how = "You sign with " + m.c.Key + ": ssh-keygen asks for what it needs."
	case !bailey.Local.Meets(want.Level):
		how = "Your answer is not signed, and less than it wants: bailey tui --key FILE signs."
	}
	d := &dialog{title: "Grant " + string(s.q.Call) + " to " + s.q.Agent + "?",
		details: []string{how, "It wants " + requirementText(want) + "."}}
	if unseen := s.unseenLineCount(); unseen > 0 {
		d.details = append([]string{fmt.Sprintf("You have not seen all of it: %d lines are further down.", unseen)},
			d.details...)
	}
	d.do = func() tea.Cmd {
		s.sent = true
		if m.c.Sign == nil {
			return m.runAction(func(ctx context.Context) (string, error) { return m.c.Hand.Grant(ctx, s.q, "") })
		}
		return m.signQuestion(s.q)
	}
	return d
}

func (s *questionScreen) denyDialog(m *Model, reason string) *dialog {
	d := &dialog{title: "Deny " + string(s.q.Call) + " to " + s.q.Agent + "?"}
	if reason != "" {
		d.details = []string{"Because: " + reason}
	}
	d.do = func() tea.Cmd {
		s.sent = true
		return m.runAction(func(ctx context.Context) (string, error) { return m.c.Hand.Deny(ctx, s.q.ID, reason) })
	}
	return d
}

// signCommand runs while it has the terminal.
type signCommand func() error

func (f signCommand) Run() error        { return f() }
func (signCommand) SetStdin(io.Reader)  {}
func (signCommand) SetStdout(io.Writer) {}
func (signCommand) SetStderr(io.Writer) {}

// signQuestion gives the terminal to the signing program, then answers.
func (m *Model) signQuestion(q Question) tea.Cmd {
	var signature string
	run := signCommand(func() (err error) { signature, err = m.c.Sign(m.ctx, q.Text); return err })
	return m.lend(run, func(err error) tea.Msg { return signedMsg{q, signature, err} })
}
