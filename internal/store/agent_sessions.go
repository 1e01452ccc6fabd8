package store

import (
	"context"
	"time"
)

// An AgentSession is the work of an agent in one session of a gateway, counted from its receipts.
type AgentSession struct {
	Host                      string
	HostName                  string
	Session                   string
	Agent, Person             string // of its first call
	Started, Last             time.Time
	Calls, Ended              int64 // calls with an outcome
	Denied, Asked, Failed     int64
	Models                    int64 // requests to models
	InputTokens, OutputTokens int64
	MicroUSD                  int64
}

// A SessionFilter selects sessions. A zero field selects all.
type SessionFilter struct {
	Host, Session, Agent string
	Since, Until         time.Time // its last call began or ended then or later; before
	// The last session of the page before: its time, host and name.
	BeforeLast    time.Time
	BeforeHost    string
	BeforeSession string
	Limit         int
}

// AgentSessions returns sessions of an organisation, those with the newest call first.
func (s *Store) AgentSessions(ctx context.Context, organisation string, f SessionFilter) ([]AgentSession, error) {
	where, args := "a.organisation = ?", []any{organisation}
	add := func(condition string, values ...any) {
		where, args = where+" AND "+condition, append(args, values...)
	}
	for _, c := range []struct{ column, value string }{{"a.host", f.Host}, {"a.session", f.Session}, {"a.agent", f.Agent}} {
		if c.value != "" {
			add(c.column+" = ?", c.value)
		}
	}
	if !f.Since.IsZero() {
		add("a.last >= ?", toMicros(f.Since))
	}
	if !f.Until.IsZero() {
		add("a.last < ?", toMicros(f.Until))
	}
	if f.BeforeHost != "" {
		add("(a.last, a.host, a.session) < (?, ?, ?)", toMicros(f.BeforeLast), f.BeforeHost, f.BeforeSession)
	}
	return queryRows(ctx, s, s.db, func(scan func(...any) error) (a AgentSession, err error) {
		var started, last int64
		err = scan(&a.Host, &a.HostName, &a.Session, &a.Agent, &a.Person, &started, &last, &a.Calls, &a.Ended, &a.Denied,
			&a.Asked, &a.Failed, &a.Models, &a.InputTokens, &a.OutputTokens, &a.MicroUSD)
		a.Started, a.Last = fromMicros(started), fromMicros(last)
		return a, err
	}, "SELECT a.host, l.name, a.session, a.agent, a.person, a.started, a.last, a.calls, a.ended, a.denied, a.asked, "+
		"a.failed, a.models, a.input_tokens, a.output_tokens, a.micro_usd "+
		"FROM agent_sessions a JOIN ledgers l ON l.host = a.host WHERE "+where+
		" ORDER BY a.last DESC, a.host DESC, a.session DESC LIMIT ?", append(args, f.Limit)...)
}
