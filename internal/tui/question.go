package tui

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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
	details     bool      // shows the details, too
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
		return "d takes the approval back · m details · t exact text · ↑↓ scroll · Esc back"
	case s.exact:
		return "g approve · d deny · t in words · ↑↓ scroll · Esc back"
	}
	return "g approve · d deny · m details · t exact text · [ ] similar · ↑↓ scroll · Esc back"
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
	case key == "m":
		s.details = !s.details
	case key == "[", key == "]":
		return s.openSimilar(m, key == "]")
	case key == "g" && s.canAnswer() && s.q.RunBy.IsZero():
		m.openDialog(s.grantDialog(m))
	case key == "d" && s.canAnswer():
		m.prompt = &prompt{title: "Reason for the denial? The agent is told.", most: mostReason, do: func(reason string) tea.Cmd { return m.openDialog(s.denyDialog(m, reason)) }}
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
	if !s.details {
		return append(lines, "", m.ink.faint("m shows the details: arguments, inputs, environment, digests"))
	}
	return append(append(lines, "", m.ink.bold("Details")), renderFields(m.ink, s.q.detailFields(), w)...)
}

// changeLines shows the differences from the previous question.
func (s *questionScreen) changeLines(m *Model, w int) []string {
	if s.last == nil {
		return nil
	}
	out := []string{"", m.ink.bold("Since the last question about it, " + string(s.last.ID) + ":")}
	changed := diffLines(s.last.comparableLines(), s.q.comparableLines())
	if len(changed) == 0 {
		return append(out, "  only the time or the session has changed", "")
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
	how := "Your answer is not signed: its level is local."
	switch {
	case m.c.Sign != nil:
		how = "You sign with " + m.c.Key + ": ssh-keygen asks for what it needs."
	case s.q.Signed:
		how = "Your answer is not signed, but settings.yaml names approvers: sign with bailey tui --key FILE."
	case !bailey.Local.Meets(want.Level):
		how = "Your answer is not signed, which is not sufficient: sign with bailey tui --key FILE."
	}
	d := &dialog{title: "Grant " + string(s.q.Call) + " to " + s.q.Agent + "?",
		details: []string{how, "It requires " + requirementText(want) + "."}}
	if unseen := s.unseenLineCount(); unseen > 0 {
		d.details = append([]string{fmt.Sprintf("You have not seen all of it: %d more lines follow.", unseen)},
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
	return m.lend(run, func(err error) tea.Msg {
		return thenMsg(func() tea.Cmd {
			if err != nil {
				return m.finishAction("", err)
			}
			return m.runAction(func(ctx context.Context) (string, error) { return m.c.Hand.Grant(ctx, q, signature) })
		})
	})
}

// loadQuestion loads a complete question, and the previous question of the same kind.
func (m *Model) loadQuestion(id bailey.ApprovalID) tea.Cmd {
	last, fetch := m.lastBefore(id)
	return load(m, func(ctx context.Context) (Question, error) {
		q, err := m.c.Look.Question(ctx, id)
		if err == nil && last == nil && fetch != "" {
			// it may just have ended; then there is nothing to compare with
			if l, err := m.c.Look.Question(ctx, fetch); err == nil {
				last = &l
			}
		}
		return q, err
	}, func(q Question, err error) tea.Cmd { return m.showQuestion(q, last, err) })
}

// lastBefore returns the latest earlier question about the same capability of the same agent, as far as this program
// knows it: the complete question, or its ID while it is open.
func (m *Model) lastBefore(id bailey.ApprovalID) (whole *Question, open bailey.ApprovalID) {
	n := slices.IndexFunc(m.now.Questions, func(q Question) bool { return q.ID == id })
	if n < 0 {
		return nil, ""
	}
	q := m.now.Questions[n]
	var at time.Time
	earlier := func(o Question) bool {
		return o.ID != q.ID && o.Call == q.Call && o.Agent == q.Agent && o.AskedAt.Before(q.AskedAt) &&
			o.AskedAt.After(at)
	}
	for _, o := range m.now.Questions {
		if earlier(o) {
			open, at = o.ID, o.AskedAt
		}
	}
	for i, o := range m.before {
		if earlier(o) || o.ID == open {
			whole, at = &m.before[i], o.AskedAt
		}
	}
	return whole, open
}

// mostRemembered limits the questions that are kept for comparison.
const mostRemembered = 64

// showQuestion shows a question. It replaces another question on top, so that stepping through similar ones does not stack
// them. If no question to compare with is known, it searches earlier ones.
func (m *Model) showQuestion(q Question, last *Question, err error) tea.Cmd {
	if m.hasOpenDialog() {
		return nil
	}
	if err == nil {
		m.before = slices.DeleteFunc(m.before, func(o Question) bool { return o.ID == q.ID })
		if m.before = append(m.before, q); len(m.before) > mostRemembered {
			m.before = slices.Delete(m.before, 0, 1)
		}
		if n := len(m.over); n > 0 {
			if _, ok := m.over[n-1].(*questionScreen); ok {
				m.over = m.over[:n-1]
			}
		}
	}
	m.pushScreen(&questionScreen{q: q, last: last}, err)
	if err != nil || last != nil {
		return nil
	}
	return load(m, func(ctx context.Context) (*Question, error) { return m.c.Look.Before(ctx, q) },
		func(last *Question, err error) tea.Cmd {
			// the comparison is only an aid, not a part of the question, which may no longer be visible
			if top, ok := m.topScreen().(*questionScreen); ok && err == nil && top.q.ID == q.ID && top.last == nil {
				top.last = last
			}
			return nil
		})
}

// diffLines returns the changes from old to now: removed lines with "- ", added lines with "+ ". Unchanged lines are
// omitted.
func diffLines(old, now []string) []string {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	if len(old)*len(now) > mostCompared {
		return append(prefixLines("- ", old), prefixLines("+ ", now)...)
	}
	return diffByLCS(old, now)
}

// mostCompared limits the memory of a comparison. If two texts differ in thousands of lines, they are treated as
// unrelated.
const mostCompared = 1 << 20

func prefixLines(mark string, lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, mark+l)
	}
	return out
}

// diffByLCS finds the longest common subsequence.
func diffByLCS(old, now []string) []string {
	// common[i][j] is the length of the longest common subsequence of old[i:] and now[j:].
	common := make([][]int, len(old)+1)
	for i := range common {
		common[i] = make([]int, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); old[i] == now[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+old[i])
			i++
		default:
			out = append(out, "+ "+now[j])
			j++
		}
	}
	return out
}
