package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/console"
	"bailey/internal/receipts"
	"bailey/internal/store"
)

func (s *Server) receiptPages() {
	admin := Access{Role: store.Admin}
	addConsolePage(s, "GET", "/receipts", "receipts-page", admin, s.showReceipts)
	addConsolePage(s, "GET", "/receipts/{host}/{seq}", "receipt-page", admin, s.showReceipt)
	addConsolePage(s, "GET", "/receipts/{host}/{seq}/file", "receipt-file", admin, s.sendReceipt)
}

// Limits of lists.
const (
	rowsOfPage   = 50 // unless the URL has another limit
	mostRowsPage = 1000
	searchWindow = 20_000 // receipts that a search by text looks at for one page
)

// choice is an entry of a selection.
type choice struct {
	ID, Name string
	Selected bool
}

func choicesOf(selected string, names ...string) (all []choice) {
	for _, n := range names {
		all = append(all, choice{n, n, n == selected})
	}
	return all
}

// receiptQuery is the filter in the URL of a list.
type receiptQuery struct {
	Text, Host, Agent, Session, Capability, Decision, Status, Since, Until, Next string
	Limit                                                                        int // rows of a page
}

func readReceiptQuery(q url.Values) receiptQuery {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 {
		limit = rowsOfPage
	}
	return receiptQuery{q.Get("text"), q.Get("host"), q.Get("agent"), q.Get("session"), q.Get("capability"), q.Get("decision"),
		q.Get("status"), q.Get("since"), q.Get("until"), q.Get("next"), min(limit, mostRowsPage)}
}

// urlValues returns the query without the place in the list.
func (q receiptQuery) urlValues() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"text": q.Text, "host": q.Host, "agent": q.Agent, "session": q.Session,
		"capability": q.Capability, "decision": q.Decision, "status": q.Status, "since": q.Since, "until": q.Until} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if q.Limit != rowsOfPage {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// parseFormTime reads the time of a form, which is in UTC.
func parseFormTime(text string) (time.Time, error) {
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil || text == "" {
			return t, nil
		}
	}
	return time.Time{}, bailey.Invalid.New("a time of the search is not in the form 2026-01-31T12:00", "")
}

func (q receiptQuery) readFilter() (f store.ReceiptFilter, err error) {
	for _, text := range []string{q.Text, q.Host, q.Agent, q.Session, q.Capability, q.Decision, q.Status} {
		if strings.Contains(text, "\x00") || len(text) > 400 {
			return f, bailey.Invalid.New("a filter is too long, or has a character that no receipt has", "")
		}
	}
	f = store.ReceiptFilter{Host: q.Host, Agent: q.Agent, Session: q.Session, Capability: q.Capability, Decision: q.Decision,
		Status: q.Status, Text: strings.ToValidUTF8(strings.TrimSpace(q.Text), "?"), Window: searchWindow, Limit: q.Limit + 1}
	if f.Since, err = parseFormTime(q.Since); err != nil {
		return f, err
	}
	if f.Until, err = parseFormTime(q.Until); err == nil && q.Next != "" {
		err = readCursor(q.Next, &f)
	}
	return f, err
}

// receiptRow is a call in a list.
type receiptRow struct {
	store.Receipt
	URL, SessionURL string
	Took            time.Duration
}

// partly says how far a search by text came.
type partly struct {
	Looked int
	Back   time.Time
}

type receiptsPage struct {
	console.Frame
	Query               receiptQuery
	Hosts               []choice
	Decisions, Statuses []choice
	Items               []receiptRow
	Partly              *partly
	Filtered            bool
	All                 string
	Paging              console.Paging
}

func (s *Server) showReceipts(w http.ResponseWriter, r *http.Request, c *Caller) error {
	organisation := r.PathValue(ofOrganisation)
	frame, err := s.frameFor(r, c, "/receipts", "Receipts")
	if err != nil {
		return err
	}
	q := readReceiptQuery(r.URL.Query())
	v := receiptsPage{Frame: frame, Query: q, Decisions: decisionChoices(q.Decision), Statuses: statusChoices(q.Status),
		All: r.URL.Path, Filtered: len(q.urlValues()) > 0}
	if v.Hosts, err = s.hostChoices(r.Context(), organisation, q.Host, ""); err != nil {
		return err
	}
	list, err := s.listPage(r, q, false)
	if err != nil {
		return err
	}
	v.Partly, v.Paging = list.partly, list.paging
	for _, one := range list.items {
		v.Items = append(v.Items, s.newReceiptRow(organisation, one))
	}
	s.writePage(w, "receipts", http.StatusOK, &v)
	return nil
}

func decisionChoices(selected string) []choice { return choicesOf(selected, "allow", "ask", "deny") }

func statusChoices(selected string) (all []choice) {
	for _, name := range receipts.Statuses() {
		all = append(all, choicesOf(selected, string(name))...)
	}
	return all
}

// hostChoices lists the hosts of a kind, or of all.
func (s *Server) hostChoices(ctx context.Context, organisation, selected, kind string) (all []choice, err error) {
	hosts, err := s.Store.Hosts(ctx, organisation)
	for _, h := range hosts {
		if kind == "" || h.Kind == kind {
			all = append(all, choice{h.ID, h.Name, h.ID == selected})
		}
	}
	return all, err
}

func (s *Server) newReceiptRow(organisation string, one store.Receipt) receiptRow {
	row := receiptRow{Receipt: one, URL: s.receiptLink(organisation, one), Took: one.Ended.Sub(one.Started)}
	if one.Session != "" {
		row.SessionURL = s.sessionLink(organisation, one.Host, one.Session)
	}
	return row
}

func (s *Server) receiptLink(organisation string, one store.Receipt) string {
	return s.linkTo(organisation, "/receipts/{host}/{seq}", one.Host, strconv.FormatUint(one.Seq, 10))
}

func (s *Server) sessionLink(organisation, host, session string) string {
	return s.linkTo(organisation, "/sessions/{session}", session) + "?host=" + url.QueryEscape(host)
}

// receiptList is one page of a list.
type receiptList struct {
	items  []store.Receipt
	partly *partly
	paging console.Paging
}

// listPage returns the page of a list that a query names.
func (s *Server) listPage(r *http.Request, q receiptQuery, oldest bool) (l receiptList, err error) {
	f, err := q.readFilter()
	if err != nil {
		return l, err
	}
	f.Oldest = oldest
	organisation := r.PathValue(ofOrganisation)
	if l.items, err = s.Store.Receipts(r.Context(), organisation, f); err != nil {
		return l, err
	}
	next := ""
	if len(l.items) > q.Limit {
		l.items = l.items[:q.Limit]
		next = writeCursor(l.items[q.Limit-1])
	} else if f.Text != "" {
		end, more, err := s.Store.ReceiptsEnd(r.Context(), organisation, f)
		if err != nil {
			return l, err
		}
		if more {
			next, l.partly = writeCursor(end), &partly{searchWindow, end.Started}
		}
	}
	values := q.urlValues()
	if q.Next != "" {
		l.paging.First = r.URL.Path + "?" + values.Encode()
	}
	if next != "" {
		values.Set("next", next)
		l.paging.Next = r.URL.Path + "?" + values.Encode()
	}
	return l, nil
}

// provenEntry is an entry as the page shows it: the line without its newline.
type provenEntry struct {
	Seq   uint64
	Proof []audit.Hash
	Line  string
}

type receiptPageView struct {
	console.Frame
	Item                                        store.Receipt
	In                                          bailey.Intent
	Out                                         *bailey.Outcome
	Cage                                        *bailey.Cage
	Arguments                                   string
	ArgumentBytes                               int
	Took, Ran, CPU                              time.Duration
	Cost                                        string
	HostURL, SessionURL, ApprovalURL, WithinURL string
	Forked                                      bool
	Entries                                     []provenEntry
	Checkpoint, Key, Witness, FileURL, Command  string
	NoProof                                     string
}

// findReceipt returns the receipt that a path names, with its ledger.
func (s *Server) findReceipt(r *http.Request) (one store.Receipt, l store.Ledger, err error) {
	organisation := r.PathValue(ofOrganisation)
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 62)
	host := r.PathValue("host")
	if err != nil || strings.Contains(host, "\x00") {
		return one, l, bailey.NotFound.New("there is no such receipt", "")
	}
	if one, err = s.Store.ReceiptAt(r.Context(), organisation, host, seq); err == nil {
		l, err = s.Store.LedgerOf(r.Context(), organisation, one.Host)
	}
	return one, l, err
}

func (s *Server) showReceipt(w http.ResponseWriter, r *http.Request, c *Caller) error {
	one, l, err := s.findReceipt(r)
	if err != nil {
		return err
	}
	frame, err := s.frameFor(r, c, "/receipts", "Receipt of "+cmp.Or(one.Capability, "a call"))
	if err != nil {
		return err
	}
	v := receiptPageView{Frame: frame, Item: one, Forked: !l.Forked.IsZero(), Key: l.FirstKey}
	if err := s.readHalves(r.Context(), &v); err != nil {
		return err
	}
	s.addReceiptLinks(r.PathValue(ofOrganisation), &v)
	proof, err := s.proveReceipt(r.Context(), l, one)
	switch {
	case errors.Is(err, bailey.NotFound):
		v.NoProof = asProblem(err).Detail + ". The host signs every few seconds."
	case err != nil:
		return err
	default:
		s.addProof(&v, proof)
	}
	s.writePage(w, "receipt", http.StatusOK, &v)
	return nil
}

// readHalves reads the intent and the outcome from their lines. Data of other versions shows what it has.
func (s *Server) readHalves(ctx context.Context, v *receiptPageView) error {
	lines, err := s.Store.EntriesAt(ctx, v.Item.Host, v.Item.Seq, v.Item.OutcomeSeq)
	for _, e := range lines {
		switch e.Seq {
		case v.Item.Seq:
			json.Unmarshal(entryData(e.Line), &v.In)
		case v.Item.OutcomeSeq:
			v.Out = &bailey.Outcome{}
			json.Unmarshal(entryData(e.Line), v.Out)
		}
	}
	v.Arguments = indentArguments(v.In.Input)
	if v.ArgumentBytes = v.In.InputBytes; v.In.InputBody != nil {
		v.ArgumentBytes = v.In.InputBody.Length
	}
	if o := v.Out; o != nil {
		v.Cage, v.Took = o.Cage, o.EndedAt.Sub(v.In.StartedAt)
		v.Ran, v.CPU = time.Duration(o.RanMillis)*time.Millisecond, time.Duration(o.CPUMillis)*time.Millisecond
		if o.Model != nil {
			v.Cost = formatCost(o.Model.MicroUSD)
		}
	}
	return err
}

// indentArguments returns JSON with white space for people.
func indentArguments(input []byte) string {
	var b bytes.Buffer
	if len(input) == 0 || json.Indent(&b, input, "", "  ") != nil {
		return string(input)
	}
	return b.String()
}

// formatCost writes millionths of a US dollar.
func formatCost(micros int64) string {
	if micros <= 0 {
		return "–"
	}
	return fmt.Sprintf("$%d.%04d", micros/1_000_000, micros%1_000_000/100)
}

func (s *Server) addReceiptLinks(organisation string, v *receiptPageView) {
	v.HostURL = s.linkTo(organisation, "/hosts/{id}", v.Item.Host)
	if v.HostURL == "" {
		v.HostURL = s.linkTo(organisation, "/receipts") + "?host=" + url.QueryEscape(v.Item.Host)
	}
	if v.Item.Session != "" {
		v.SessionURL = s.sessionLink(organisation, v.Item.Host, v.Item.Session)
	}
	if v.Out != nil && v.Out.Approval != "" {
		v.ApprovalURL = s.linkTo(organisation, "/approvals/{id}", string(v.Out.Approval))
	}
	v.WithinURL = s.linkTo(organisation, "/receipts") + "?text=" + url.QueryEscape(string(v.In.Within))
}

func (s *Server) addProof(v *receiptPageView, proof audit.Receipt) {
	for _, e := range proof.Entries {
		v.Entries = append(v.Entries, provenEntry{e.Seq, e.Proof, strings.TrimSuffix(string(e.Line), "\n")})
	}
	v.Checkpoint = strings.TrimSuffix(string(proof.Checkpoint), "\n")
	if s.Cosigner != nil && audit.Cosigned(proof.Checkpoint) {
		v.Witness = s.Witness.String()
	}
	v.FileURL = v.Base + "/receipts/" + url.PathEscape(v.Item.Host) + "/" + strconv.FormatUint(v.Item.Seq, 10) + "/file"
	v.Command = "bailey audit verify --receipt " + receiptFileName(v.Item) + " \\\n  --key " + v.Key
	if v.Witness != "" {
		v.Command += " \\\n  --witness " + v.Witness
	}
}

// receiptFileName is the name of a downloaded receipt. A host chooses the name of a receipt, so only plain characters of
// it are kept.
func receiptFileName(one store.Receipt) string { return plainName(one.Receipt) + ".receipt" }

// plainName returns the characters of a text that are safe in the name of a file and in a shell.
func plainName(text string) string {
	plain := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_' {
			return c
		}
		return -1
	}, text)
	return cmp.Or(strings.TrimLeft(plain[:min(len(plain), 60)], "-"), "bailey")
}

// sendReceipt sends the portable receipt, for bailey audit verify --receipt.
func (s *Server) sendReceipt(w http.ResponseWriter, r *http.Request, _ *Caller) error {
	one, l, err := s.findReceipt(r)
	if err != nil {
		return err
	}
	proof, err := s.proveReceipt(r.Context(), l, one)
	if err != nil {
		return err
	}
	sendFile(w, receiptFileName(one), proof.Text())
	return nil
}

func sendFile(w http.ResponseWriter, name string, text []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)
}
