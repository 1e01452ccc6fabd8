package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/receipts"
	"bailey/internal/wire"
)

// wanted is a filter for receipts, as given by flags.
type wanted struct {
	receipts.Filter
	since, until string
}

func (w *wanted) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(&w.Status), "status", "", "only those that ended so: `"+strings.Join(statusNames(), "|")+"`")
	f.StringVar((*string)(&w.Capability), "capability", "", "only calls of this `capability`")
	f.StringVar(&w.Agent, "agent", "", "only calls of this `agent`")
	f.StringVar((*string)(&w.Session), "session", "", "only calls of this `session`")
	f.StringVar(&w.since, "since", "", "started so long ago or later: `7d`, 36h, 90m, a date, or a time as in 2026-11-03T09:00:00Z")
	f.StringVar(&w.until, "until", "", "started before that: `1d`, a date or a time")
	cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp))
}

// filter returns the filter with times relative to now. It rejects invalid values before a gateway is started.
func (w *wanted) filter(now time.Time) (f receipts.Filter, err error) {
	f = w.Filter
	if f.Status != "" && !slices.Contains(receipts.Statuses(), f.Status) {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("no receipt has the status %q", f.Status), Hint: "there are " + strings.Join(statusNames(), ", ")}
	}
	if f.Since, err = moment("--since", w.since, now); err != nil {
		return f, err
	}
	if f.Until, err = moment("--until", w.until, now); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: "--since is not before --until: nothing lies between them", Hint: "--since 7d --until 1d is from seven days ago to one day ago"}
	}
	return f, nil
}

func statusNames() (names []string) {
	for _, s := range receipts.Statuses() {
		names = append(names, string(s))
	}
	return names
}

// filterArgs and filterOf encode and decode a filter for a query.
func filterArgs(f receipts.Filter) map[string]any { return map[string]any{"filter": f} }

func filterOf(args map[string]any) (f receipts.Filter, err error) {
	b, err := json.Marshal(args["filter"])
	if err != nil {
		return f, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // ignoring an unknown field would return too many receipts
	if err := dec.Decode(&f); err != nil {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: "the filter is none", Hint: "client and gateway may be of two versions: bailey gateway stop ends the running one", Err: err}
	}
	return f, nil
}

// records is a query: it returns complete receipts.
func (s *stack) records(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	return s.index.Find(ctx, f)
}

// receipts is a query: it returns the rows of a list.
func (s *stack) receipts(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	f, err := filterOf(q.Args)
	if err != nil {
		return nil, err
	}
	page, err := s.index.Find(ctx, f)
	return newReceiptList(page), err
}

// receipt is a query: it returns one complete receipt. If the index lacks it, or the outcome of a call that no longer
// runs, the ledger is read: a process that can write the index file could have removed it.
func (s *stack) receipt(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	id := bailey.ReceiptID(text(q.Args, "id"))
	f := receipts.Filter{ID: id, Limit: 1}
	if !possible(id) {
		return nil, noReceipt(id)
	}
	page, err := s.index.Find(ctx, f)
	if err == nil && (len(page.Records) == 0 || page.Records[0].Outcome == nil && !s.isLive(id)) {
		page, err = s.index.Scan(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 {
		return nil, noReceipt(id)
	}
	return s.show(page.Records[0]), nil
}

// possible reports whether id has the form of a receipt id, so that the ledger is not searched for other text.
func possible(id bailey.ReceiptID) bool {
	return len(id) == len("r-")+26 && strings.HasPrefix(string(id), "r-")
}

func noReceipt(id bailey.ReceiptID) error {
	return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no receipt %q", id), Hint: "bailey receipts list shows them"}
}

func (s *stack) isLive(id bailey.ReceiptID) bool {
	calls, _ := s.live.Now()
	return slices.ContainsFunc(calls, func(c gateway.LiveCall) bool { return c.Receipt == id })
}
