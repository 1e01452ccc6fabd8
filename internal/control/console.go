package control

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/console"
	"bailey/internal/receipts"
	"bailey/internal/store"
)

// This file connects package console: it registers the pages of organisations, and gives each its frame. A form of a page
// runs the handler of the API's route, and then redirects to a page.

// sections is the navigation. An entry is shown to people of its role once its page is registered.
var sections = []struct {
	path, label string
	role        store.Role
}{
	{"", "Overview", store.Member},
	{"/approvals", "Approvals", store.Member},
	{"/sessions", "Sessions", store.Admin},
	{"/receipts", "Receipts", store.Admin},
	{"/sandboxes", "Sandboxes", store.Member},
	{"/hosts", "Hosts", store.Member},
	{"/sources", "Source hosts", store.Member},
	{"/policy", "Policy", store.Member},
	{"/members", "Members", store.Member},
	{"/tokens", "Agents and tokens", store.Member},
	{"/settings", "Settings", store.Member},
}

const consoleRoot = "/o/{" + ofOrganisation + "}"

// consolePages registers the pages of organisations. A part of the console adds its line here.
func (s *Server) consolePages() {
	s.liveRoutes()
	s.consoleHostRoutes()
	s.consolePeopleRoutes()
	s.consoleSettingRoutes()
	addConsolePage(s, "GET", "", "overview", Access{Role: store.Member}, s.showOverview)
	s.receiptPages()
	s.sessionPages()
	s.policyPages()
	s.approvalPages()
}

// addConsolePage registers a page of an organisation, whose path begins after that of the organisation. It is for people,
// so that an API token does not open it.
func addConsolePage(s *Server, method, path, id string, a Access, f func(http.ResponseWriter, *http.Request, *Caller) error) {
	if a.Role == 0 {
		panic(path + ": a page of an organisation needs a role")
	}
	a.People = true
	addPage(s, method, consoleRoot+path, id, a, f)
}

// hasPage reports whether a page of organisations is registered.
func (s *Server) hasPage(path string) bool {
	return s.pages[withoutNames(consoleRoot+path)]
}

// withoutNames returns the path of a page without the names of its parameters.
func withoutNames(path string) string { return parameterNames.ReplaceAllString(path, "{}") }

var parameterNames = regexp.MustCompile(`\{\w+\}`)

// frameFor returns the frame of a page of the organisation that the request names. section is the path of its entry in
// the navigation.
func (s *Server) frameFor(r *http.Request, c *Caller, section, title string) (console.Frame, error) {
	ctx, organisation := r.Context(), r.PathValue(ofOrganisation)
	f := console.Frame{Title: title, Base: "/o/" + organisation, Role: c.Role.String(), Account: cmp.Or(c.Account.Name,
		c.Account.Email)}
	all, err := s.Store.Organisations(ctx, c.Account.ID)
	if err != nil {
		return f, err
	}
	for _, o := range all {
		if o.ID == organisation {
			f.Organisation = o.Name
		}
	}
	waiting, err := s.Store.CountOpen(ctx, organisation)
	for _, n := range sections {
		if c.Role < n.role || !s.hasPage(n.path) {
			continue
		}
		e := console.Entry{URL: f.Base + n.path, Label: n.label, Current: n.path == section}
		if n.path == "/approvals" {
			e.Count = waiting
		}
		f.Navigation = append(f.Navigation, e)
	}
	return f, err
}

// linkTo returns the URL of a page of an organisation, or "" if this version has no such page. page is the registered
// path of the page, for example /hosts/{id}, and parts replace its parameters.
func (s *Server) linkTo(organisation, page string, parts ...string) string {
	if !s.hasPage(page) {
		return ""
	}
	for _, part := range parts {
		before, rest, _ := strings.Cut(page, "{")
		_, after, _ := strings.Cut(rest, "}")
		page = before + url.PathEscape(part) + after
	}
	return "/o/" + url.PathEscape(organisation) + page
}

// receiptURL returns the URL of the page of a receipt, or "" if there is no such page.
func (s *Server) receiptURL(organisation string, r store.Receipt) string {
	return s.linkTo(organisation, "/receipts/{host}/{seq}", r.Host, strconv.FormatUint(r.Seq, 10))
}

// overviewRow is something in the tables of the overview.
type overviewRow struct {
	URL, Capability, Agent, HostName, Why string
	At, Expires                           time.Time
}

type overviewPage struct {
	console.Frame
	Waiting, Running, Denied []overviewRow
	Gateways, Connected      int
	SeesReceipts             bool
}

// mostRows limits each table of the overview.
const mostRows = 10

func (s *Server) showOverview(w http.ResponseWriter, r *http.Request, c *Caller) error {
	ctx, organisation := r.Context(), r.PathValue(ofOrganisation)
	frame, err := s.frameFor(r, c, "", "Overview")
	if err != nil {
		return err
	}
	v := overviewPage{Frame: frame, SeesReceipts: c.Role >= store.Admin}
	hosts, err := s.Store.Hosts(ctx, organisation)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, h := range hosts {
		names[h.ID] = h.Name
		if h.Kind == store.Gateway {
			v.Gateways++
			if s.Hosts.Connected(h.ID) {
				v.Connected++
			}
		}
	}
	if v.Waiting, err = s.questionRows(ctx, organisation, store.QuestionOpen, names); err != nil {
		return err
	}
	if v.Denied, err = s.questionRows(ctx, organisation, store.QuestionDenied, names); err != nil {
		return err
	}
	if v.SeesReceipts {
		if err := s.addCalls(ctx, organisation, &v); err != nil {
			return err
		}
	}
	s.writePage(w, "overview", http.StatusOK, v)
	return nil
}

// questionRows returns the last questions in a state.
func (s *Server) questionRows(ctx context.Context, organisation, state string, names map[string]string) (rows []overviewRow,
	err error) {
	all, err := s.Store.Questions(ctx, organisation, store.QuestionFilter{State: state, Limit: mostRows})
	for _, q := range all {
		i := newApprovalItem(q, names, false)
		rows = append(rows, overviewRow{URL: s.linkTo(organisation, "/approvals/{id}", q.ID), Capability: i.Capability,
			Agent: i.Agent, HostName: i.HostName, Why: q.Reason, At: q.Decided, Expires: q.Expires})
	}
	return rows, err
}

// addCalls adds the calls that run, and those that a rule refused.
func (s *Server) addCalls(ctx context.Context, organisation string, v *overviewPage) error {
	for status, rows := range map[string]*[]overviewRow{string(receipts.Open): &v.Running, string(bailey.Refused): &v.Denied} {
		all, err := s.Store.Receipts(ctx, organisation, store.ReceiptFilter{Status: status, Limit: mostRows})
		if err != nil {
			return err
		}
		for _, one := range all {
			row := overviewRow{URL: s.receiptURL(organisation, one),
				Capability: one.Capability, Agent: one.Agent, HostName: one.HostName, At: one.Started}
			if status == string(bailey.Refused) {
				row.Why = "refused by the gateway"
			}
			*rows = append(*rows, row)
		}
	}
	slices.SortStableFunc(v.Denied, func(a, b overviewRow) int { return b.At.Compare(a.At) })
	v.Denied = v.Denied[:min(len(v.Denied), mostRows)]
	return nil
}

// reportPath is where browsers report what the content security policy stopped.
const reportPath = "/csp-report"

// policyReports limits the reports that are written to the log.
type policyReports struct{ limit auth.Limiter }

// takeReport writes a report to the log. Anybody can send one, so there are few, and their text is quoted.
func (s *Server) takeReport(w http.ResponseWriter, r *http.Request, c *Caller) error {
	var report struct {
		Body struct {
			Document  string `json:"document-uri"`
			Blocked   string `json:"blocked-uri"`
			Directive string `json:"effective-directive"`
			Sample    string `json:"script-sample"`
		} `json:"csp-report"`
	}
	w.WriteHeader(http.StatusNoContent)
	text, err := io.ReadAll(io.LimitReader(r.Body, 16<<10))
	if err != nil || json.Unmarshal(text, &report) != nil || s.broken.limit.Allow(c.Address) > 0 {
		return nil
	}
	b := report.Body
	s.Log.Warn("a browser stopped something on a page that the content security policy forbids",
		"page", indexText(b.Document), "blocked", indexText(b.Blocked), "directive", indexText(b.Directive),
		"sample", indexText(b.Sample))
	return nil
}
