package control

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/console"
	"bailey/internal/store"
)

// This file has the pages of questions. The page of a question shows its text: what an answer binds. Beside it the page
// has only what the server itself knows, such as the name of the gateway.

func (s *Server) approvalPages() {
	member := Access{Role: store.Member}
	addConsolePage(s, "GET", "/approvals", "approvals-page", member, s.showApprovals)
	addConsolePage(s, "GET", "/approvals/{id}", "approval-page", member, func(w http.ResponseWriter, r *http.Request, c *Caller) error {
		return s.writeApproval(w, r, c, nil)
	})
	addConsolePage(s, "POST", "/approvals/{id}", "deny-page", Access{Role: store.Admin}, s.denyOnPage)
}

// perPage is how many rows a list of the console has.
const perPage = 50

type approvalsPage struct {
	console.Frame
	console.Paging
	Filter store.QuestionFilter
	States []string
	Hosts  []store.Host
	Rows   []approvalRow
	Any    bool // whether a filter is set
}

type approvalRow struct {
	approvalItem
	URL string
}

// questionStates are those that a list can be filtered by.
var questionStates = []string{store.QuestionOpen, store.QuestionGranted, store.QuestionDenied, store.QuestionExpired}

// allStates is the filter of every state: without one, a list has the open questions.
const allStates = "all"

// showApprovals lists questions: the parameters are state, host, agent, capability and next.
func (s *Server) showApprovals(w http.ResponseWriter, r *http.Request, c *Caller) error {
	ctx, organisation, q := r.Context(), r.PathValue(ofOrganisation), r.URL.Query()
	f := store.QuestionFilter{State: cmp.Or(q.Get("state"), store.QuestionOpen), Host: q.Get("host"),
		Agent: strings.TrimSpace(q.Get("agent")), Capability: strings.TrimSpace(q.Get("capability")), Limit: perPage + 1}
	if f.State != allStates && !slices.Contains(questionStates, f.State) {
		return bailey.Invalid.Errorf("choose one of the list", "no question has the state %.20q", f.State)
	}
	if err := checkFilters(f.Host, f.Agent, f.Capability); err != nil {
		return err
	}
	if next := q.Get("next"); next != "" {
		if err := readQuestionCursor(next, &f); err != nil {
			return err
		}
	}
	frame, err := s.frameFor(r, c, "/approvals", "Approvals")
	if err != nil {
		return err
	}
	v := approvalsPage{Frame: frame, Filter: f, States: append(slices.Clone(questionStates), allStates),
		Any: f.State != store.QuestionOpen || f.Host+f.Agent+f.Capability != ""}
	if f.State == allStates {
		f.State = ""
	}
	all, err := s.Store.Questions(ctx, organisation, f)
	if err != nil {
		return err
	}
	if v.Hosts, err = s.Store.Hosts(ctx, organisation); err != nil {
		return err
	}
	v.Hosts = slices.DeleteFunc(v.Hosts, func(h store.Host) bool { return h.Kind != store.Gateway })
	if len(all) > perPage {
		all = all[:perPage]
		v.Next = pageURL(r, writeQuestionCursor(all[perPage-1]))
	}
	if f.BeforeID != "" {
		v.First = pageURL(r, "")
	}
	names := map[string]string{}
	for _, h := range v.Hosts {
		names[h.ID] = h.Name
	}
	for _, one := range all {
		v.Rows = append(v.Rows, approvalRow{newApprovalItem(one, names, false), s.linkTo(organisation, "/approvals/{id}", one.ID)})
	}
	s.writePage(w, "approvals", http.StatusOK, v)
	return nil
}

// checkFilters refuses texts that nothing stored can have.
func checkFilters(filters ...string) error {
	for _, text := range filters {
		if len(text) > 200 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return bailey.Invalid.New("a filter is too long, or has a character that no name has", "correct it")
		}
	}
	return nil
}

// pageURL returns the URL of this list with the same filters and another page. If next is "", it is the first one.
func pageURL(r *http.Request, next string) string {
	q := r.URL.Query()
	q.Del("next")
	if next != "" {
		q.Set("next", next)
	}
	return (&url.URL{Path: r.URL.Path, RawQuery: q.Encode()}).String()
}

// questionCursor is the last question of a page.
type questionCursor struct {
	Arrived int64
	ID      string
}

func writeQuestionCursor(q store.Question) string {
	text, _ := json.Marshal(questionCursor{q.Arrived.UnixMicro(), q.ID})
	return base64.RawURLEncoding.EncodeToString(text)
}

func readQuestionCursor(text string, f *store.QuestionFilter) error {
	var c questionCursor
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(b, &c) != nil || c.ID == "" || checkFilters(c.ID) != nil {
		return bailey.Invalid.New("the parameter next is not from a page of this server", "begin without it")
	}
	f.BeforeArrived, f.BeforeID = time.UnixMicro(c.Arrived), c.ID
	return nil
}

type approvalPage struct {
	console.Frame
	Fault, Hint string
	Item        approvalItem
	Question    bailey.Question // of the text, or zero if this version cannot read the text
	Readable    bool
	Brief       brief
	Open        bool
	Connected   bool // the gateway
	MayDeny     bool
	Server      string // the host of this server, which a browser shows
	Passkeys    []string
	URL, API    string
	HostURL     string
	SessionURL  string
	ReceiptURL  string
}

// brief is what a question has for a person, with the lines of its previews marked.
type brief struct {
	approvaltext.Brief
	Sections []markedSection
	Command  []string // the arguments, if there is no preview
}

type markedSection struct {
	Title string
	Lines []markedLine
}

// markedLine is a line of a preview. Mark is "add" or "cut" for the lines of a difference, or "".
type markedLine struct{ Mark, Text string }

func newBrief(q bailey.Question) brief {
	b := brief{Brief: approvaltext.NewBrief(q)}
	for _, s := range b.Brief.Sections {
		b.Sections = append(b.Sections, markedSection{s.Title, markLines(s.Lines)})
	}
	for _, a := range q.Argv {
		b.Command = append(b.Command, a.Text)
	}
	return b
}

func markLines(lines []string) (all []markedLine) {
	for _, text := range lines {
		mark := ""
		switch {
		case strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "+++"):
			mark = "add"
		case strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "---"):
			mark = "cut"
		}
		all = append(all, markedLine{mark, text})
	}
	return all
}

// writeApproval writes the page of a question. fault is why an answer failed, or nil.
func (s *Server) writeApproval(w http.ResponseWriter, r *http.Request, c *Caller, fault error) error {
	ctx, organisation := r.Context(), r.PathValue(ofOrganisation)
	q, err := s.Store.QuestionByID(ctx, organisation, r.PathValue("id"))
	if err != nil {
		return err
	}
	names, err := s.hostNames(ctx, organisation)
	if err != nil {
		return err
	}
	v := approvalPage{Item: newApprovalItem(q, names, true), Open: q.State == store.QuestionOpen, Connected: s.Hosts.Connected(q.Host),
		MayDeny: c.Role >= store.Admin, Server: s.Public.Hostname(), URL: s.linkTo(organisation, "/approvals/{id}", q.ID),
		API:     "/api/v1/organisations/" + url.PathEscape(organisation) + "/approvals/" + url.PathEscape(q.ID) + "/answer",
		HostURL: s.linkTo(organisation, "/hosts/{id}", q.Host)}
	if v.Frame, err = s.frameFor(r, c, "/approvals", v.Item.Capability); err != nil {
		return err
	}
	if text, err := approvaltext.Parse(v.Item.Text); err == nil {
		v.Question, v.Readable, v.Brief = text, true, newBrief(text)
	}
	keys, err := s.Store.Passkeys(ctx, c.Account.ID)
	if err != nil {
		return err
	}
	for _, k := range keys {
		v.Passkeys = append(v.Passkeys, k.ID)
	}
	if c.Role >= store.Admin && v.Readable {
		if err := s.addLinks(ctx, organisation, &v); err != nil {
			return err
		}
	}
	status := http.StatusOK
	if fault != nil {
		s.logFault("deny-page", fault)
		p := asProblem(fault)
		v.Fault, v.Hint, status = p.Detail, p.Hint, p.Status
	}
	s.writePage(w, "approval", status, v)
	return nil
}

// addLinks adds the links to the session and the receipt of a question.
func (s *Server) addLinks(ctx context.Context, organisation string, v *approvalPage) error {
	if v.Question.Session != "" {
		v.SessionURL = s.linkTo(organisation, "/sessions/{id}", string(v.Question.Session))
	}
	found, err := s.Store.Receipts(ctx, organisation, store.ReceiptFilter{Host: v.Item.Host, Receipt: indexText(v.Question.Receipt),
		Limit: 1})
	if err == nil && len(found) > 0 {
		v.ReceiptURL = s.receiptURL(organisation, found[0])
	}
	return err
}

// denyOnPage denies a question. The gateway reports the end of the question by itself, for which the answer waits a
// little, so that the next page has it.
func (s *Server) denyOnPage(w http.ResponseWriter, r *http.Request, c *Caller) error {
	in := answerInput{InOrganisationByID: InOrganisationByID{r.PathValue(ofOrganisation), r.PathValue("id")}}
	in.Body.Reason = strings.TrimSpace(r.PostFormValue("reason"))
	if utf8.RuneCountInString(in.Body.Reason) > maxDenial {
		return s.writeApproval(w, r, c, bailey.Invalid.Errorf("shorten it", "the reason has more than %d characters", maxDenial))
	}
	_, changed := s.news.watchChanges(in.Organisation)
	if _, err := recordChange(r.Context(), s, "answer-approval", c, &in, s.answerApproval); err != nil {
		return s.writeApproval(w, r, c, err)
	}
	q, err := s.Store.QuestionByID(r.Context(), in.Organisation, in.ID)
	if err == nil && q.State == store.QuestionOpen {
		select {
		case <-changed:
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
	}
	http.Redirect(w, r, s.linkTo(in.Organisation, "/approvals/{id}", in.ID), http.StatusSeeOther)
	return nil
}

// maxDenial limits the reason of a denial, in characters, as the API does.
const maxDenial = 500
