package control

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/console"
	"bailey/internal/store"
)

func (s *Server) sessionPages() {
	admin := Access{Role: store.Admin}
	addConsolePage(s, "GET", "/sessions", "sessions-page", admin, s.showSessions)
	addConsolePage(s, "GET", "/sessions/{session}", "session-page", admin, s.showSession)
	addConsolePage(s, "GET", "/sessions/{session}/evidence", "session-evidence", admin, s.sendEvidence)
}

// sessionRow is a session in a list.
type sessionRow struct {
	store.AgentSession
	URL    string
	Tokens int64
	Cost   string
	Open   int64 // calls without an outcome
}

type sessionsPage struct {
	console.Frame
	Query    receiptQuery
	Hosts    []choice
	Items    []sessionRow
	Filtered bool
	All      string
	Paging   console.Paging
}

func (s *Server) newSessionRow(organisation string, a store.AgentSession) sessionRow {
	return sessionRow{AgentSession: a, URL: s.sessionLink(organisation, a.Host, a.Session),
		Tokens: a.InputTokens + a.OutputTokens, Cost: formatCost(a.MicroUSD), Open: a.Calls - a.Ended}
}

// sessionCursor is the last session of a page.
type sessionCursor struct {
	Last          int64
	Host, Session string
}

func (s *Server) showSessions(w http.ResponseWriter, r *http.Request, c *Caller) error {
	organisation := r.PathValue(ofOrganisation)
	frame, err := s.frameFor(r, c, "/sessions", "Sessions")
	if err != nil {
		return err
	}
	q := readReceiptQuery(r.URL.Query())
	v := sessionsPage{Frame: frame, Query: q, All: r.URL.Path, Filtered: len(q.urlValues()) > 0}
	if v.Hosts, err = s.hostChoices(r.Context(), organisation, q.Host, store.Gateway); err != nil {
		return err
	}
	f, err := q.readFilter() // checks the values
	next := q.Next
	if q.Next = ""; next != "" {
		f, err = q.readFilter()
	}
	if err != nil {
		return err
	}
	sf := store.SessionFilter{Host: f.Host, Session: f.Session, Agent: f.Agent, Since: f.Since, Until: f.Until,
		Limit: rowsOfPage + 1}
	if next != "" {
		var at sessionCursor
		b, err := base64.RawURLEncoding.DecodeString(next)
		if err != nil || json.Unmarshal(b, &at) != nil || at.Host == "" || strings.Contains(at.Host+at.Session, "\x00") {
			return bailey.Invalid.New("the parameter next is not from a page of this server", "begin without it")
		}
		sf.BeforeLast, sf.BeforeHost, sf.BeforeSession = time.UnixMicro(at.Last), at.Host, at.Session
		v.Paging.First = r.URL.Path + "?" + q.urlValues().Encode()
	}
	all, err := s.Store.AgentSessions(r.Context(), organisation, sf)
	if err != nil {
		return err
	}
	if len(all) > rowsOfPage {
		all = all[:rowsOfPage]
		last := all[rowsOfPage-1]
		text, _ := json.Marshal(sessionCursor{last.Last.UnixMicro(), last.Host, last.Session})
		values := q.urlValues()
		values.Set("next", base64.RawURLEncoding.EncodeToString(text))
		v.Paging.Next = r.URL.Path + "?" + values.Encode()
	}
	for _, a := range all {
		v.Items = append(v.Items, s.newSessionRow(organisation, a))
	}
	s.writePage(w, "sessions", http.StatusOK, &v)
	return nil
}

// sessionStep is a call in the timeline of a session.
type sessionStep struct {
	store.Receipt
	ID, URL, Reason, Arguments, Cost string
	Took                             time.Duration
	Rules                            []bailey.Rule
	Layers                           []string
	Model                            *bailey.ModelUse
}

type sessionPageView struct {
	console.Frame
	Query                         receiptQuery
	Several                       []sessionRow
	Item                          sessionRow
	HostURL, EvidenceURL, Command string
	Decisions, Statuses           []choice
	Steps                         []sessionStep
	Partly                        *partly
	Paging                        console.Paging
}

// findSessions returns the sessions that a path names: several if hosts have one of the same name.
func (s *Server) findSessions(r *http.Request) ([]store.AgentSession, error) {
	session, host := r.PathValue("session"), r.URL.Query().Get("host")
	none := bailey.NotFound.New("there is no such session", "see the list of sessions")
	if session == "" || strings.Contains(session+host, "\x00") {
		return nil, none
	}
	all, err := s.Store.AgentSessions(r.Context(), r.PathValue(ofOrganisation), store.SessionFilter{Session: session, Host: host,
		Limit: rowsOfPage})
	if err == nil && len(all) == 0 {
		err = none
	}
	return all, err
}

func (s *Server) showSession(w http.ResponseWriter, r *http.Request, c *Caller) error {
	organisation := r.PathValue(ofOrganisation)
	all, err := s.findSessions(r)
	if err != nil {
		return err
	}
	frame, err := s.frameFor(r, c, "/sessions", "Session "+all[0].Session)
	if err != nil {
		return err
	}
	v := sessionPageView{Frame: frame}
	if len(all) > 1 {
		for _, a := range all {
			v.Several = append(v.Several, s.newSessionRow(organisation, a))
		}
		s.writePage(w, "session", http.StatusOK, &v)
		return nil
	}
	v.Item = s.newSessionRow(organisation, all[0])
	q := readReceiptQuery(r.URL.Query())
	q.Host, q.Session = v.Item.Host, v.Item.Session
	list, err := s.listPage(r, q, true)
	if err != nil {
		return err
	}
	v.Query, v.Partly, v.Paging = q, list.partly, list.paging
	v.Decisions, v.Statuses = decisionChoices(q.Decision), statusChoices(q.Status)
	v.HostURL = s.linkTo(organisation, "/receipts") + "?host=" + url.QueryEscape(q.Host)
	if page := s.linkTo(organisation, "/hosts/{id}", q.Host); page != "" {
		v.HostURL = page
	}
	v.EvidenceURL = v.Base + "/sessions/" + url.PathEscape(q.Session) + "/evidence?host=" + url.QueryEscape(q.Host)
	v.Command = "bailey audit verify " + evidenceFileName(v.Item.AgentSession)
	if v.Steps, err = s.readSteps(r.Context(), organisation, q.Host, list.items); err != nil {
		return err
	}
	s.writePage(w, "session", http.StatusOK, &v)
	return nil
}

// readSteps reads the lines of calls of a host.
func (s *Server) readSteps(ctx context.Context, organisation, host string, all []store.Receipt) ([]sessionStep, error) {
	var seqs []uint64
	for _, one := range all {
		seqs = append(seqs, one.Seq, one.OutcomeSeq)
	}
	lines, err := s.Store.EntriesAt(ctx, host, seqs...)
	if err != nil {
		return nil, err
	}
	data := map[uint64]json.RawMessage{}
	for _, e := range lines {
		data[e.Seq] = entryData(e.Line)
	}
	var steps []sessionStep
	for _, one := range all {
		var in bailey.Intent
		var out bailey.Outcome
		json.Unmarshal(data[one.Seq], &in)
		json.Unmarshal(data[one.OutcomeSeq], &out)
		step := sessionStep{Receipt: one, ID: "call-" + strconv.FormatUint(one.Seq, 10), URL: s.receiptLink(organisation, one),
			Reason: out.Reason, Arguments: indentArguments(in.Input), Took: one.Ended.Sub(one.Started), Rules: out.Rules,
			Model: out.Model}
		if out.Cage != nil {
			step.Layers = out.Cage.Layers
		}
		if out.Model != nil && out.Model.MicroUSD > 0 {
			step.Cost = formatCost(out.Model.MicroUSD)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func evidenceFileName(a store.AgentSession) string { return plainName(a.Session) + ".evidence" }

// mostEvidence is how many calls an evidence bundle has. Each has up to three entries.
const mostEvidence = 10_000

// sendEvidence sends the entries of a session as a sealed bundle, for bailey audit verify.
func (s *Server) sendEvidence(w http.ResponseWriter, r *http.Request, _ *Caller) error {
	all, err := s.findSessions(r)
	if err != nil {
		return err
	}
	if len(all) > 1 {
		return bailey.Conflict.New("several hosts have a session of this name", "name one of them in the parameter host")
	}
	text, err := s.makeEvidence(r.Context(), r.PathValue(ofOrganisation), all[0])
	if err == nil {
		sendFile(w, evidenceFileName(all[0]), text)
	}
	return err
}

// makeEvidence seals the entries of a session with the key of the server's witness.
func (s *Server) makeEvidence(ctx context.Context, organisation string, a store.AgentSession) ([]byte, error) {
	if s.Cosigner == nil {
		return nil, bailey.Unavailable.New("this server has no key to sign evidence with", "see the log of bailey-server")
	}
	l, err := s.Store.LedgerOf(ctx, organisation, a.Host)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.Receipts(ctx, organisation, store.ReceiptFilter{Host: a.Host, Session: a.Session, Oldest: true,
		Limit: mostEvidence + 1})
	if err != nil {
		return nil, err
	}
	if len(all) > mostEvidence {
		return nil, bailey.Invalid.Errorf("export the ledger of the host instead: GET …/hosts/ID/ledger",
			"the session has more than %d calls", mostEvidence)
	}
	p, err := s.newProver(ctx, l)
	if err != nil {
		return nil, err
	}
	seqs, err := s.entriesOfReceipts(ctx, l, all)
	if err != nil {
		return nil, err
	}
	e := audit.Evidence{Witness: s.Witness, Checkpoint: []byte(l.Checkpoint)}
	if e.Entries, err = p.proveEntries(seqs); err != nil {
		return nil, err
	}
	if e.Key, err = audit.ParseKey(l.FirstKey); err != nil {
		return nil, err
	}
	e.About, err = json.Marshal(map[string]any{"organisation": organisation, "host": a.Host, "host_name": a.HostName,
		"session": a.Session, "agent": a.Agent, "person": a.Person, "calls": len(all)})
	if err != nil {
		return nil, err
	}
	return audit.SealEvidence(e, s.Cosigner)
}
