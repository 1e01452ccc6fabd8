package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/mcp"
	"bailey/internal/settings"
)

// byClient is the operator right of an answer that an agent's client gave for its user. Only the client's word supports
// it.
const byClient = "client"

// unsigned reports whether one unsigned answer would grant the question under the current settings. It is checked
// before the question is shown. The answer itself is checked by [proven].
func unsigned(q bailey.Question, trusted []settings.Approver) bool {
	w := bailey.Combine(q.Rules)
	return len(trusted) == 0 && w.Count <= 1 && len(w.Roles) == 0 && bailey.Local.Meets(w.Level)
}

// sessionApprover is the queue for sessions that outlive their connections. When the gateway drops a connection, the questions
// of such a session are not withdrawn, because the session can return to them. They expire at their own time.
type sessionApprover struct {
	*approve.Queue
	sessions *gateway.Sessions
}

func (l sessionApprover) End(id bailey.SessionID) {
	if !l.sessions.Lasts(id) {
		l.Queue.End(id)
	}
}

// Question returns an open question to the session that made its call.
func (d mcpBackend) Question(_ context.Context, from bailey.Call, id bailey.ApprovalID) (mcp.Question, error) {
	open := d.s.Queue.Open()
	i := slices.IndexFunc(open, func(q approve.Seen) bool { return q.ID == id })
	if i < 0 || from.Session.ID == "" || open[i].Session != from.Session.ID || open[i].Principal.Agent != from.Principal.Agent {
		return mcp.Question{}, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q of this session is open", id), Hint: "call again: it says what became of it"}
	}
	var trusted []settings.Approver
	if d.s.desk != nil {
		trusted = d.s.desk.settings.Applied().Approvers
	}
	return mcp.Question{Question: open[i].Question, Local: d.asks(from) && unsigned(open[i].Question, trusted)}, nil
}

// asks reports whether the client of a call may ask its user. The answer comes through the client, so it has value only
// if the agent cannot give it: the settings must name the client. An agent in the agent jail, with a token or over HTTP
// can be any program, so these never ask.
func (d mcpBackend) asks(from bailey.Call) bool {
	if !d.stdio || from.Door != "mcp" || from.Principal.Token != "" || d.s.desk == nil || d.s.jailed(from.Session.ID) {
		return false
	}
	name, _, _ := strings.Cut(from.Client, "/")
	return slices.Contains(d.s.desk.settings.Applied().Agents.Asking, name)
}

// Answer handles an answer that came through a client. The answer counts as the client's own, so the ledger names no
// person for it.
func (d mcpBackend) Answer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string, grant bool, reason string) error {
	q, err := d.Question(ctx, from, id)
	switch {
	case err != nil:
		return err
	case q.Digest != digest:
		return &bailey.Error{Kind: bailey.Conflict, Message: fmt.Sprintf("question %s reads otherwise than what was shown", id), Hint: "call again"}
	case !d.asks(from):
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("this client may not answer question %s", id), Hint: "bailey approve " + string(id)}
	case grant && !q.Local:
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("question %s wants more than a client can say", id), Hint: "bailey approve " + string(id)}
	}
	_, err = d.s.Queue.Answer(ctx, approve.Given{Question: id, Digest: digest, Grant: grant, Reason: reason,
		Person: "the client " + cmp.Or(from.Client, "without a name"), Operator: byClient})
	return err
}
