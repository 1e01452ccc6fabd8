package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/receipts"
	"bailey/internal/tui"
	"bailey/internal/wire"
)

// nowLook is the query that the screen repeats. Its answer contains only state that can change at any time and is cheap
// to determine.
const nowLook = "now"

// present is the current state of the gateway.
type present struct {
	questionList
	Calls  []gateway.LiveCall `json:"calls"`
	Wraps  wrapsKnown         `json:"wraps,omitzero"`
	Killed *gateway.Killed    `json:"killed,omitempty"`
}

func (s *stack) present(ctx context.Context, _ wire.Query, from bailey.Call) (any, error) {
	list, err := s.approvals(ctx, wire.Query{}, from)
	if err != nil {
		return nil, err
	}
	out := present{}
	out.questionList, _ = list.(questionList)
	out.Calls, _ = s.live.Now()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	out.Wraps = s.wrapsNow()
	out.Wraps.Refused = last(out.Wraps.Refused, shownRefusals)
	return out, nil
}

// shownRefusals is the maximum number of refusals of agents in the agent jail that a screen shows. wrap --log shows
// all.
const shownRefusals = 32

// tuiDesk connects the terminal UI with the gateway. Its queries do not start a gateway.
type tuiDesk struct {
	app  *app
	home wire.Home
	yes  bool
}

func (d *tuiDesk) client() *wire.Client { return &wire.Client{Home: d.home} }

func (d *tuiDesk) look(ctx context.Context, verb string, args map[string]any, out any) error {
	return d.client().Look(ctx, wire.Query{Verb: verb, Args: args}, out)
}

func (d *tuiDesk) Now(ctx context.Context) (tui.Now, error) {
	var at present
	if err := d.look(ctx, nowLook, nil, &at); err != nil {
		return tui.Now{}, err
	}
	var now tui.Now
	for _, q := range at.Approvals {
		now.Questions = append(now.Questions, q.inList())
	}
	for _, c := range at.Calls {
		now.Calls = append(now.Calls, tui.Call{Receipt: c.Receipt, Capability: c.Capability, Agent: c.Agent, Door: c.Door, Session: c.Session, Since: c.Since})
	}
	if at.Killed != nil {
		now.Killed = killedWords(*at.Killed)
	}
	for _, r := range at.Wraps.Runs {
		if r.Ended.IsZero() {
			now.Walls = append(now.Walls, tui.Wall{Agent: r.Agent, Project: r.Project, Since: r.Started})
		}
	}
	for _, r := range at.Wraps.Refused {
		now.Refused = append(now.Refused, tui.Refusal{Agent: at.Wraps.agent(r), Reason: r.Reason, Hint: r.Hint, At: r.At})
	}
	return now, nil
}

// inList returns the question as a list shows it.
func (o openQuestion) inList() tui.Question {
	q := tui.Question{Question: o.Question, Agent: o.Agent, Given: o.Inputs, Waits: o.Waits, RunBy: o.RunBy}
	q.Rules = o.Rules
	for _, e := range o.Answers {
		q.Answers = append(q.Answers, tui.Answered{Name: e.Name, Level: e.Level})
	}
	return q
}

func (d *tuiDesk) Question(ctx context.Context, id bailey.ApprovalID) (tui.Question, error) {
	o, err := questionOf(ctx, d.client(), string(id))
	if err != nil {
		return tui.Question{}, err
	}
	return o.bound()
}

// bound returns the question as its text describes it, because an answer binds only the text and not the fields beside
// it.
func (o openQuestion) bound() (tui.Question, error) {
	q, err := o.read(string(o.ID))
	if err != nil {
		return tui.Question{}, err
	}
	return q.inList(), nil
}

func (d *tuiDesk) Receipts(ctx context.Context, words string, before uint64) (tui.Receipts, error) {
	f, err := filterWords(words, time.Now())
	if err != nil {
		return tui.Receipts{}, err
	}
	f.Limit, f.Before = 50, before
	var l receiptList
	if err := d.look(ctx, "receipts", filterArgs(f), &l); err != nil {
		return tui.Receipts{}, err
	}
	page := tui.Receipts{Next: l.Next}
	for _, r := range l.Receipts {
		page.Rows = append(page.Rows, tui.Receipt{ID: r.ID, Capability: r.Capability, Agent: r.Agent, Status: r.status(), Why: r.why(), Started: r.StartedAt})
	}
	return page, nil
}

// filterWords parses a search: a status, a receipt id, a capability, or name=value as for the flags of receipts list.
func filterWords(words string, now time.Time) (receipts.Filter, error) {
	var w wanted
	for _, word := range strings.Fields(words) {
		name, value, named := strings.Cut(word, "=")
		switch {
		case !named && possible(bailey.ReceiptID(word)):
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
			return receipts.Filter{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("no search knows %q", visible(name)), Hint: "a capability, a status, a receipt's id, agent=, session=, since=, until="}
		}
	}
	return w.filter(now)
}

func (d *tuiDesk) Receipt(ctx context.Context, id bailey.ReceiptID) ([]string, error) {
	var r shownReceipt
	if err := d.look(ctx, "receipt", map[string]any{"id": id}, &r); err != nil {
		return nil, err
	}
	return splitLines(indentValue(r)), nil
}

// Verify returns the output of bailey audit verify.
func (d *tuiDesk) Verify(ctx context.Context) (tui.Verdict, error) {
	var said bytes.Buffer
	err := d.app.local.verify(ctx, &app{stdout: &said, stderr: &said})
	var code exit
	if err != nil && !errors.As(err, &code) {
		return tui.Verdict{}, err
	}
	return tui.Verdict{OK: err == nil, Lines: splitLines(said.String())}, nil
}

func (d *tuiDesk) Grants(ctx context.Context) ([]tui.Grant, error) {
	var l grantList
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
func (d *tuiDesk) Before(ctx context.Context, q tui.Question) (*tui.Question, error) {
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
