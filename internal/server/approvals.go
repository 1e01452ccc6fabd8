package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/approver"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/safefile"
	"bailey/internal/settings"
)

// listQuestions returns the open questions, grouped by call, or the question with the given ID, which may be over.
func (s *Server) listQuestions(_ context.Context, r apitype.QuestionRequest,
	_ gateway.Caller) (apitype.QuestionList, error) {
	out := apitype.QuestionList{Approvals: []apitype.OpenQuestion{}}
	for _, o := range s.Queue.Open() {
		if r.ID == "" || o.ID == r.ID {
			out.Approvals = append(out.Approvals, newOpenQuestion(o))
		}
	}
	for i := range out.Approvals {
		out.Approvals[i].Signed = len(s.settings.Applied().Approvers) > 0
	}
	if r.ID == "" {
		groupQuestions(out.Approvals)
		return out, nil
	}
	if len(out.Approvals) == 0 {
		past, err := s.pastQuestion(r.ID)
		if err != nil {
			return out, err
		}
		out.Approvals = append(out.Approvals, past)
	}
	return out, nil
}

func newOpenQuestion(o approve.Seen) apitype.OpenQuestion {
	q := apitype.NewQuestion(o.Question)
	q.Waits = o.Waits > 0
	if q.Answers = o.Answers; !o.Granted.IsZero() {
		q.State, q.RunBy, q.Lapsed = apitype.StateGranted, o.RunBy, o.Lapsed
	}
	return q
}

// groupQuestions moves each question behind the oldest one about the same call, and shortens all of them with brief. The
// digests stay.
func groupQuestions(list []apitype.OpenQuestion) {
	first := map[string]int{}
	for i := range list {
		list[i].Brief()
		if _, ok := first[list[i].Alike]; !ok {
			first[list[i].Alike] = i
		}
	}
	slices.SortStableFunc(list, func(a, b apitype.OpenQuestion) int { return first[a.Alike] - first[b.Alike] })
}

// questionHistory collects the entries of one question from the ledger. It implements [ledger.Recaller].
type questionHistory struct {
	id       bailey.ApprovalID
	question *bailey.Question
	answers  []approve.Event
	use      *approve.Use

	segment []approve.Event // answers of the current segment
	bad     error
}

// Read handles one entry. The answers follow their question, in the same segment or in a later one.
func (t *questionHistory) Read(e audit.Entry) {
	var err error
	switch e.Kind {
	case approve.QuestionEvent:
		var q bailey.Question
		if err = json.Unmarshal(e.Data, &q); err == nil && q.ID == t.id {
			t.question = &q
		}
	case approve.AnswerEvent:
		var a approve.Event
		if err = json.Unmarshal(e.Data, &a); err == nil && a.ID == t.id {
			t.segment = append(t.segment, a)
		}
	case approve.UseEvent:
		var u approve.Use
		if err = json.Unmarshal(e.Data, &u); err == nil && u.Question == t.id {
			t.use = &u
		}
	}
	if err != nil {
		t.bad = fmt.Errorf("entry %d: %w", e.Seq, err)
	}
}

// Enough puts the answers of an older segment before those of newer segments.
func (t *questionHistory) Enough() bool {
	t.answers, t.segment = append(t.segment, t.answers...), nil
	return t.question != nil
}

// pastQuestion reads a question that is over from the ledger.
func (s *Server) pastQuestion(id bailey.ApprovalID) (apitype.OpenQuestion, error) {
	t := &questionHistory{id: id}
	if err := ledger.Backward(s.home.Ledger(), t); err != nil {
		return apitype.OpenQuestion{}, err
	}
	if t.question == nil {
		return apitype.OpenQuestion{},
			bailey.NotFound.Wrapf(t.bad,
				"run bailey approvals list to show the open questions, or bailey receipts list to show how calls ended",
				"there is no question %q, open or past", id)
	}
	q, err := approvaltext.Parse(t.question.Text)
	if err != nil {
		return apitype.OpenQuestion{},
			bailey.Unavailable.Wrapf(err, "run bailey audit verify to check whether the ledger is intact",
				"question %s was asked by another version of bailey", id)
	}
	q.Text, q.Digest, q.Subject, q.Alike = t.question.Text, t.question.Digest, t.question.Subject, t.question.Alike
	o := apitype.NewQuestion(q)
	o.State, o.Answers, o.Ended = apitype.StateOver, append(o.Answers, t.answers...), "it ended with its gateway"
	switch {
	case t.use != nil:
		o.Ended = fmt.Sprintf("approved, and used by %s", t.use.Receipt)
	case len(t.answers) > 0:
		o.Ended = t.answers[len(t.answers)-1].Reason
	}
	return o, nil
}

// recordAnswerListener records in the ledger that the interface was opened, and by which operator right.
func (s *Server) recordAnswerListener(ctx context.Context, r apitype.AnswerListener,
	from gateway.Caller) (none localapi.None, err error) {
	return none, s.scribe.recordEvent(ctx, apitype.ApprovalsServeEvent, map[string]any{
		"listen": r.Listen, "tls": r.TLS, "operator": from.Operator, "person": from.Principal.Person})
}

// approveQuestion grants a question.
func (s *Server) approveQuestion(ctx context.Context, r apitype.QuestionApproval,
	from gateway.Caller) (approve.Tally, error) {
	return s.Queue.Answer(ctx, approve.Given{Question: r.ID, Digest: r.Digest, Grant: true,
		Signature: r.Signature, Person: from.Principal.Person, Operator: string(from.Operator)})
}

// denyQuestion is open to every user. The denial must be recorded even if the caller disconnects first.
func (s *Server) denyQuestion(ctx context.Context, r apitype.QuestionDenial,
	from gateway.Caller) (approve.Tally, error) {
	reason := s.redaction.Text(from.Session.ID, r.Reason)
	if len(reason) > 2*apitype.MaxDenial {
		reason = ""
	}
	return s.Queue.Answer(context.WithoutCancel(ctx), approve.Given{Question: r.ID, Reason: reason,
		Person: from.Principal.Person})
}

// approverOfAnswer determines the approver of an answer from the current settings. If the settings name approvers, one of them
// must have signed the answer. Otherwise the answer counts as the operator's own.
func (s *Server) approverOfAnswer(text []byte, g approve.Given) (approve.Approver, error) {
	return verifyAnswer(text, g, s.settings.Applied().Approvers)
}

func verifyAnswer(text []byte, g approve.Given, trusted []settings.Approver) (a approve.Approver, err error) {
	switch {
	case g.Signature == "" && len(trusted) > 0:
		return a, bailey.Denied.New(settings.FileName+" names approvers, but this answer is not signed",
			fmt.Sprintf("use bailey approve %s --key FILE", g.Question))
	case g.Signature == "":
		return approve.Approver{Name: cmp.Or(g.Person, "an operator"), Level: bailey.Local}, nil
	case len(trusted) == 0:
		return a, bailey.Denied.New("no key is trusted to sign an answer",
			"list keys under approvers in "+settings.FileName+", then run bailey init --apply; or answer without a key")
	}
	var lines [][2]string
	for _, t := range trusted {
		lines = append(lines, [2]string{t.Name, t.Key})
	}
	keys, err := approver.ParseKeys(lines)
	if err != nil {
		return a, err
	}
	by, err := approver.Verify(text, g.Signature, keys)
	if err != nil {
		return a, bailey.KindOf(err).Wrap(err, "the answer's signature", bailey.HintOf(err))
	}
	return approve.Approver{Name: by.Name, Level: by.Level, Key: by.Key, Counter: by.Counter,
		Roles: trusted[by.Index].Roles}, nil
}

// saltName is the file of the home with the salt of the commitments in questions. If it is lost, they can no longer be
// verified.
const saltName = "approvals.salt"

const saltSize = 32

// openSalt reads the salt of the home, or creates it.
func openSalt(home localapi.Home) ([]byte, error) {
	salt, err := safefile.Read(home.Path(saltName), 1<<10)
	switch {
	case err != nil:
		return nil, bailey.Unavailable.Wrap(err, saltName+" cannot be read", "check its owner and mode")
	case len(salt) == saltSize:
		return salt, nil
	case salt != nil:
		return nil, bailey.Unavailable.New(saltName+" was changed",
			"restore it from a copy of the home; or remove it: the next start creates another, and earlier questions can no longer be compared with their arguments")
	}
	salt = make([]byte, saltSize)
	rand.Read(salt) // never fails (crypto/rand)
	return salt, safefile.Put(string(home), saltName, salt, 0o600, nil)
}

// byClient is the operator right of an answer that an agent's client gave for its user. Only the client's word supports
// it.
const byClient = "client"

// canGrantUnsigned reports whether one unsigned answer would grant the question under the current settings. It is checked
// before the question is shown. The answer itself is checked by [verifyAnswer].
func canGrantUnsigned(q bailey.Question, trusted []settings.Approver) bool {
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
	if i < 0 || from.Session.ID == "" || open[i].Session != from.Session.ID ||
		open[i].Principal.Agent != from.Principal.Agent {
		return mcp.Question{}, bailey.NotFound.Errorf("call again to see its result",
			"no question %q of this session is open", id)
	}
	trusted := d.s.settings.Applied().Approvers
	local := d.canAskUser(from) && canGrantUnsigned(open[i].Question, trusted)
	return mcp.Question{Question: open[i].Question, Local: local, Session: local && approve.CanStand(open[i].Question)}, nil
}

// canAskUser reports whether the client of a call may ask its user. The answer comes through the client, so it has value only
// if the agent cannot give it: the settings must name the client. An agent in the agent jail, with a token or over HTTP
// can be any program, so these never ask.
func (d mcpBackend) canAskUser(from bailey.Call) bool {
	if !d.stdio || from.Door != "mcp" || from.Principal.Token != "" || d.s.isJailed(from.Session.ID) {
		return false
	}
	name, _, _ := strings.Cut(from.Client, "/")
	return slices.Contains(d.s.settings.Applied().Agents.Asking, name)
}

// Answer handles an answer that came through a client. The answer counts as the client's own, so the ledger names no
// person for it.
func (d mcpBackend) Answer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string, grant bool,
	reason string) error {
	if _, err := d.checkClientAnswer(ctx, from, id, digest, grant); err != nil {
		return err
	}
	_, err := d.s.Queue.Answer(ctx, approve.Given{Question: id, Digest: digest, Grant: grant, Reason: reason,
		Person: clientName(from), Operator: byClient})
	return err
}

// AnswerSession handles an answer of a client that counts for the rest of the session.
func (d mcpBackend) AnswerSession(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string) error {
	q, err := d.checkClientAnswer(ctx, from, id, digest, true)
	switch {
	case err != nil:
		return err
	case !q.Session:
		return bailey.Denied.Errorf("answer yes", "question %s has no answer for a session", id)
	}
	text, err := d.s.Queue.Draft(id, approve.MaxStanding, true)
	if err != nil {
		return err
	}
	g, err := approvaltext.ParseGrant(text)
	if err != nil {
		return err
	}
	_, err = d.s.Queue.Stand(ctx, g.ID, approve.Given{Digest: approvaltext.Digest(text), Grant: true,
		Person: clientName(from), Operator: byClient})
	return err
}

func clientName(from bailey.Call) string {
	return "the client " + cmp.Or(from.Client, "without a name")
}

// checkClientAnswer returns the question if this client may give the answer.
func (d mcpBackend) checkClientAnswer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string,
	grant bool) (mcp.Question, error) {
	q, err := d.Question(ctx, from, id)
	switch {
	case err != nil:
	case q.Digest != digest:
		err = bailey.Conflict.Errorf("call again", "question %s differs from the one shown", id)
	case !d.canAskUser(from):
		err = bailey.Denied.Errorf("bailey approve "+string(id), "this client may not answer question %s", id)
	case grant && !q.Local:
		err = bailey.Denied.Errorf("bailey approve "+string(id),
			"question %s needs more than a client can provide", id)
	}
	return q, err
}

// draftGrant returns the text that would be signed.
func (s *Server) draftGrant(_ context.Context, r apitype.GrantDraftRequest,
	_ gateway.Caller) (apitype.GrantDraft, error) {
	text, err := s.Queue.Draft(r.ID, time.Duration(r.Seconds)*time.Second, r.Session)
	return apitype.GrantDraft{Text: text}, err
}

// giveGrant gives a standing grant.
func (s *Server) giveGrant(ctx context.Context, r apitype.GrantRequest,
	from gateway.Caller) (apitype.StandingGrant, error) {
	g, err := s.Queue.Stand(ctx, r.ID, approve.Given{Digest: r.Digest, Grant: true,
		Signature: r.Signature, Person: from.Principal.Person, Operator: string(from.Operator)})
	return newGrant(g), err
}

func (s *Server) revokeGrant(ctx context.Context, r apitype.ID, from gateway.Caller) (approve.Revoked, error) {
	if ended, err := s.hook.Grants.Revoke(ctx, bailey.GrantID(r.ID), from.Principal.Person); ended {
		return approve.Revoked{ID: bailey.GrantID(r.ID)}, err
	}
	end := approve.Revoked{ID: bailey.GrantID(r.ID), Person: from.Principal.Person, Operator: string(from.Operator)}
	return end, s.Queue.Revoke(ctx, end)
}

// listGrants returns the standing grants.
func (s *Server) listGrants(context.Context, localapi.None, gateway.Caller) (apitype.GrantList, error) {
	out := apitype.GrantList{Grants: []apitype.StandingGrant{}}
	for _, g := range s.Queue.Grants() {
		out.Grants = append(out.Grants, newGrant(g))
	}
	for _, g := range s.hook.Grants.List(s.Rules.Engine().Digest()) {
		out.Grants = append(out.Grants, newSessionGrants(g)...)
	}
	return out, nil
}

func newGrant(s approve.Standing) apitype.StandingGrant {
	g, err := approvaltext.ParseGrant(s.Text)
	if err != nil { // such a grant would not be valid
		return apitype.StandingGrant{ID: s.ID, Text: s.Text}
	}
	return apitype.StandingGrant{ID: g.ID, Capability: g.Capability, Agent: g.Principal.Agent,
		Person: g.Principal.Person, Session: g.Session, Rules: g.Rules, Given: g.Given, Until: g.Until,
		By: s.By.Name, Level: s.By.Level, Question: s.Question, Text: s.Text}
}
