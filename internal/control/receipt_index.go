package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
	"bailey/internal/store"
)

// This file takes from the entries of ledgers what lists show and searches find. The host has written them, so every
// text and number is bounded and in a form that each database can hold.

// indexEntry makes a receipt searchable. Data of other versions is searchable by what it has.
func (g *growth) indexEntry(ctx context.Context, e audit.Entry) error {
	switch e.Kind {
	case audit.KindIntent:
		r, search := g.s.readIntent(e.Data)
		r.Host, r.Seq, r.Receipt = g.Host, e.Seq, indexText(e.Receipt)
		return g.s.Store.AddReceipt(ctx, g.tx, g.Organisation, r, search)
	case audit.KindOutcome:
		if err := g.addSpend(ctx, e); err != nil { // before the receipt has its outcome
			return err
		}
		ending := g.s.readOutcome(e.Data)
		ending.Seq = e.Seq
		return g.s.Store.EndReceipt(ctx, g.tx, g.Host, indexText(e.Receipt), ending)
	case audit.KindPlan:
		if p, err := audit.ParsePlan(e.Data); err == nil {
			return g.s.Store.AddPlan(ctx, g.tx, g.Host, p.Digest, e.Seq)
		}
	}
	return nil
}

// addSpend adds what a request to a model has cost. The receipt is signed by the host, so it is the report.
func (g *growth) addSpend(ctx context.Context, e audit.Entry) error {
	var out bailey.Outcome
	json.Unmarshal(e.Data, &out)
	if out.Model == nil {
		return nil
	}
	input, output := out.Model.Tokens()
	g.spent = true
	return g.s.Store.AddSpend(ctx, g.tx, g.Organisation, g.Host, indexText(e.Receipt),
		store.Spending{InputTokens: input, OutputTokens: output, MicroUSD: out.Model.Price()})
}

// readIntent returns what the lists keep of an intent. Data that cannot be read stays empty: the line itself is kept.
func (s *Server) readIntent(data []byte) (r store.Receipt, search string) {
	var in bailey.Intent
	json.Unmarshal(data, &in)
	r = store.Receipt{Started: s.nearTime(in.StartedAt), Status: string(receipts.Open), Agent: indexText(in.Agent),
		Person: indexText(in.Person), Session: indexText(in.Session), Capability: indexText(in.Capability)}
	return r, searchText(string(in.Capability), in.Agent, in.Person, string(in.Receipt), in.Dir, string(in.Input))
}

// readOutcome returns what the lists keep of an outcome.
func (s *Server) readOutcome(data []byte) store.Ending {
	var o bailey.Outcome
	json.Unmarshal(data, &o)
	parts := []string{o.Reason, string(o.Approval)}
	for _, r := range o.Rules {
		parts = append(parts, string(r.ID))
	}
	parts = append(parts, o.Argv...)
	e := store.Ending{Status: indexText(o.Status), Decision: indexText(o.Decision), Ended: s.nearTime(o.EndedAt),
		Search: searchText(append(parts, o.Reaches...)...),
		Denied: o.Decision == bailey.Deny.String(), Failed: o.Status == bailey.Failed,
		Asked: o.Decision != "" && policyfiles.Was(&o) == bailey.Ask}
	if m := o.Model; m != nil {
		e.Models = 1
		e.InputTokens, e.OutputTokens = boundCount(m.InputTokens)+boundCount(m.CachedTokens), boundCount(m.OutputTokens)
		e.MicroUSD = boundCount(m.MicroUSD)
	}
	return e
}

// boundCount bounds a number that a host reports, so that no sum of them overflows.
func boundCount(n int64) int64 { return min(max(n, 0), 1<<40) }

// nearTime returns the time that a host reports, or none: a time in the future would stay the newest of all.
func (s *Server) nearTime(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) || t.After(s.Now().Add(maxDrift)) {
		return time.Time{}
	}
	return t
}

// indexText returns text as an index of each database can hold it.
func indexText[T ~string](text T) string { return clipValid(string(text), 200) }

func clipValid(text string, most int) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "?"), "?")
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// maxSearch bounds the text of each half of a receipt that a search finds.
const maxSearch = 2000

func searchText(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p != "" && b.Len() < maxSearch {
			b.WriteString(strings.ToLower(p) + "\n")
		}
	}
	return clipValid(b.String(), maxSearch)
}

// entryData returns the data of a line of a copy, which was verified when it was stored.
func entryData(line string) json.RawMessage {
	var l struct {
		Entry struct {
			Data json.RawMessage `json:"data"`
		} `json:"entry"`
	}
	json.Unmarshal([]byte(line), &l)
	return l.Entry.Data
}

// readOldReceipts stores the details of receipts that an older version of the server has stored without them.
func (s *Server) readOldReceipts(ctx context.Context) {
	const step = 200
	for {
		some, err := s.Store.UnreadReceipts(ctx, step)
		if err == nil && len(some) > 0 {
			err = s.Store.Change(ctx, func(tx *store.Tx) error {
				for _, u := range some {
					r, search := s.readIntent(entryData(u.Intent))
					u.Person = r.Person
					var e store.Ending
					if u.OutcomeSeq > 0 {
						e = s.readOutcome(entryData(u.Outcome))
					}
					if err := s.Store.ReadReceipt(ctx, tx, u, search, e); err != nil {
						return err
					}
				}
				return nil
			})
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Error("the details of older receipts were not read; that is tried again at the next start", "error", err)
		}
		if err != nil || len(some) < step {
			return
		}
	}
}

// planOf returns the digest of the plan that an outcome names, or "".
func planOf(outcome []byte) string {
	var o struct {
		Cage *struct {
			PlanDigest string `json:"planDigest"`
		} `json:"cage"`
	}
	json.Unmarshal(outcome, &o)
	if o.Cage == nil {
		return ""
	}
	return o.Cage.PlanDigest
}
