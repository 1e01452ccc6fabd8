package tui

import (
	"context"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"bailey"
)

// open fetches a question whole, and the one that was asked about the same before.
func (m *Model) open(id bailey.ApprovalID) tea.Cmd {
	last, fetch := m.lastBefore(id)
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		q, err := m.c.Look.Question(ctx, id)
		if err == nil && last == nil && fetch != "" {
			if l, err := m.c.Look.Question(ctx, fetch); err == nil { // it may just have ended: then there is nothing to compare with
				last = &l
			}
		}
		return questionMsg{q, last, err}
	})
}

// lastBefore is the question about the same capability of the same agent that was asked last before one, as far as this
// program has seen it: whole, or by its id as long as it is open.
func (m *Model) lastBefore(id bailey.ApprovalID) (whole *Question, open bailey.ApprovalID) {
	n := slices.IndexFunc(m.now.Questions, func(q Question) bool { return q.ID == id })
	if n < 0 {
		return nil, ""
	}
	q := m.now.Questions[n]
	var at time.Time
	earlier := func(o Question) bool {
		return o.ID != q.ID && o.Call == q.Call && o.Agent == q.Agent && o.AskedAt.Before(q.AskedAt) && o.AskedAt.After(at)
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

// mostRemembered bounds how many questions are kept for comparing.
const mostRemembered = 64

// opened shows a question in place of another that is open on top: going through alike ones leaves no pile. What to
// compare it with is looked for in the past where there is nothing else.
func (m *Model) opened(msg questionMsg) tea.Cmd {
	if m.asks() {
		return nil
	}
	if msg.err == nil {
		m.before = slices.DeleteFunc(m.before, func(q Question) bool { return q.ID == msg.q.ID })
		if m.before = append(m.before, msg.q); len(m.before) > mostRemembered {
			m.before = slices.Delete(m.before, 0, 1)
		}
		if n := len(m.over); n > 0 {
			if _, ok := m.over[n-1].(*question); ok {
				m.over = m.over[:n-1]
			}
		}
	}
	m.show(&question{q: msg.q, last: msg.last}, msg.err)
	if msg.err != nil || msg.last != nil {
		return nil
	}
	return m.ctxCmd(func(ctx context.Context) tea.Msg {
		last, err := m.c.Look.Before(ctx, msg.q)
		if err != nil {
			last = nil // it is a help, and no part of the question
		}
		return lastMsg{msg.q.ID, last}
	})
}

// compare adds what was found to the question that it was looked for, if that is still in front.
func (m *Model) compare(msg lastMsg) {
	if q, ok := m.top().(*question); ok && q.q.ID == msg.id && q.last == nil {
		q.last = msg.last
	}
}
