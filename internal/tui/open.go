package tui

import (
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// loadQuestion loads a complete question, and the previous question of the same kind.
func (m *Model) loadQuestion(id bailey.ApprovalID) tea.Cmd {
	last, fetch := m.lastBefore(id)
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		q, err := m.c.Look.Question(ctx, id)
		if err == nil && last == nil && fetch != "" {
			// it may just have ended; then there is nothing to compare with
			if l, err := m.c.Look.Question(ctx, fetch); err == nil {
				last = &l
			}
		}
		return questionMsg{q, last, err}
	})
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
func (m *Model) showQuestion(msg questionMsg) tea.Cmd {
	if m.hasOpenDialog() {
		return nil
	}
	if msg.err == nil {
		m.before = slices.DeleteFunc(m.before, func(q Question) bool { return q.ID == msg.q.ID })
		if m.before = append(m.before, msg.q); len(m.before) > mostRemembered {
			m.before = slices.Delete(m.before, 0, 1)
		}
		if n := len(m.over); n > 0 {
			if _, ok := m.over[n-1].(*questionScreen); ok {
				m.over = m.over[:n-1]
			}
		}
	}
	m.pushScreen(&questionScreen{q: msg.q, last: msg.last}, msg.err)
	if msg.err != nil || msg.last != nil {
		return nil
	}
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		last, err := m.c.Look.Before(ctx, msg.q)
		if err != nil {
			last = nil // the comparison is only an aid, not a part of the question
		}
		return previousMsg{msg.q.ID, last}
	})
}

// attachPrevious adds the found question to the one that it is for, if that is still visible.
func (m *Model) attachPrevious(msg previousMsg) {
	if q, ok := m.topScreen().(*questionScreen); ok && q.q.ID == msg.id && q.last == nil {
		q.last = msg.last
	}
}
