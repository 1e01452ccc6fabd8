package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
	"bailey/internal/tui"
)

// tuiBackend connects the terminal UI with the gateway. Its queries do not start a gateway.
type tuiBackend struct {
	app  *App
	home localapi.Home
	yes  bool
}

func (d *tuiBackend) client() *localapi.Client { return &localapi.Client{Home: d.home} }

func (d *tuiBackend) look(ctx context.Context, verb string, args map[string]any, out any) error {
	return d.client().Look(ctx, localapi.Query{Verb: verb, Args: args}, out)
}

func (d *tuiBackend) Now(ctx context.Context) (tui.Now, error) {
	var at apitype.Present
	if err := d.look(ctx, apitype.NowQuery, nil, &at); err != nil {
		return tui.Now{}, err
	}
	var now tui.Now
	for _, q := range at.Approvals {
		now.Questions = append(now.Questions, q.Listed())
	}
	for _, c := range at.Calls {
		now.Calls = append(now.Calls, tui.Call{Receipt: c.Receipt, Capability: c.Capability, Agent: c.Agent, Door: c.Door, Session: c.Session, Since: c.Since})
	}
	if at.Killed != nil {
		now.Killed = apitype.KilledText(*at.Killed)
	}
	for _, r := range at.Wraps.Runs {
		if r.Ended.IsZero() {
			now.Walls = append(now.Walls, tui.Wall{Agent: r.Agent, Project: r.Project, Since: r.Started})
		}
	}
	for _, r := range at.Wraps.Refused {
		now.Refused = append(now.Refused, tui.Refusal{Agent: at.Wraps.Agent(r), Reason: r.Reason, Hint: r.Hint, At: r.At})
	}
	return now, nil
}

func (d *tuiBackend) Question(ctx context.Context, id bailey.ApprovalID) (tui.Question, error) {
	o, err := questionOf(ctx, d.client(), string(id))
	if err != nil {
		return tui.Question{}, err
	}
	return o.Bound()
}

func (d *tuiBackend) Receipts(ctx context.Context, words string, before uint64) (tui.Receipts, error) {
	f, err := filterWords(words, time.Now())
	if err != nil {
		return tui.Receipts{}, err
	}
	f.Limit, f.Before = 50, before
	var l apitype.ReceiptList
	if err := d.look(ctx, "receipts", filterArgs(f), &l); err != nil {
		return tui.Receipts{}, err
	}
	page := tui.Receipts{Next: l.Next}
	for _, r := range l.Receipts {
		page.Rows = append(page.Rows, tui.Receipt{ID: r.ID, Capability: r.Capability, Agent: r.Agent, Status: r.Status(), Why: r.Why(), Started: r.StartedAt})
	}
	return page, nil
}

// filterWords parses a search: a status, a receipt id, a capability, or name=value as for the flags of receipts list.
func filterWords(words string, now time.Time) (receipts.Filter, error) {
	var w receiptFilter
	for _, word := range strings.Fields(words) {
		name, value, named := strings.Cut(word, "=")
		switch {
		case !named && apitype.Possible(bailey.ReceiptID(word)):
			w.ID = bailey.ReceiptID(word)
		case !named && slices.Contains(statusNames(), word):
			w.Status = bailey.Status(word)
		case !named, name == "capability":
			w.Capability = bailey.CapabilityID(strings.TrimPrefix(word, "capability="))
		case name == "agent":
			w.Agent = value
		case name == "session":
			w.Session = bailey.SessionID(value)
		case name == "status":
			w.Status = bailey.Status(value)
		case name == "since":
			w.since = value
		case name == "until":
			w.until = value
		default:
			return receipts.Filter{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("no search knows %q", terminal.CutLine(name)), Hint: "a capability, a status, a receipt's id, agent=, session=, since=, until="}
		}
	}
	return w.filter(now)
}

func (d *tuiBackend) Receipt(ctx context.Context, id bailey.ReceiptID) ([]string, error) {
	var r apitype.ShownReceipt
	if err := d.look(ctx, "receipt", map[string]any{"id": id}, &r); err != nil {
		return nil, err
	}
	return terminal.SplitLines(terminal.IndentValue(r)), nil
}

// Verify returns the output of bailey audit verify.
func (d *tuiBackend) Verify(ctx context.Context) (tui.Verdict, error) {
	var said bytes.Buffer
	err := d.app.Local.Verify(ctx, &App{Stdout: &said, Stderr: &said})
	var code Exit
	if err != nil && !errors.As(err, &code) {
		return tui.Verdict{}, err
	}
	return tui.Verdict{OK: err == nil, Lines: terminal.SplitLines(said.String())}, nil
}

func (d *tuiBackend) Grants(ctx context.Context) ([]tui.Grant, error) {
	var l apitype.GrantList
	if err := d.look(ctx, "grants", nil, &l); err != nil {
		return nil, err
	}
	var out []tui.Grant
	for _, g := range l.Grants {
		one := tui.Grant{ID: g.ID, Capability: g.Capability, Agent: g.Agent, Person: g.Person, Until: g.Until, By: g.By, Level: g.Level}
		for _, r := range g.Rules {
			one.Rules = append(one.Rules, string(r.ID))
		}
		out = append(out, one)
	}
	return out, nil
}

// Before returns the question that an earlier call of the same capability and agent asked within a day, or nil.
// Receipts name it, and the ledger contains it.
func (d *tuiBackend) Before(ctx context.Context, q tui.Question) (*tui.Question, error) {
	var page receipts.Page
	f := receipts.Filter{Capability: q.Call, Agent: q.Agent, Since: q.AskedAt.Add(-24 * time.Hour), Limit: 20}
	if err := d.look(ctx, "records", filterArgs(f), &page); err != nil {
		return nil, err
	}
	for _, r := range page.Records {
		if r.Outcome == nil || r.Outcome.Approval == "" || r.Outcome.Approval == q.ID || !r.Intent.StartedAt.Before(q.AskedAt) {
			continue
		}
		last, err := d.Question(ctx, r.Outcome.Approval)
		if err == nil && last.AskedAt.Before(q.AskedAt) {
			return &last, nil
		}
	}
	return nil, nil
}
