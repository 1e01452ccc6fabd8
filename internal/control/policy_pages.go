package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"bailey"
	"bailey/internal/console"
	"bailey/internal/fleet"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/receipts"
	"bailey/internal/store"
	"bailey/pack"
)

func (s *Server) policyPages() {
	addConsolePage(s, "GET", "/policy", "policy-page", Access{Role: store.Member}, func(w http.ResponseWriter, r *http.Request,
		c *Caller) error {
		return s.showPolicy(w, r, c, http.StatusOK, policyPage{})
	})
	addConsolePage(s, "POST", "/policy/replay", "policy-replay", Access{Role: store.Admin}, s.replayPolicy)
}

func (s *Server) storePolicyState(ctx context.Context, tx *store.Tx, h store.Host, e fleet.Event) error {
	var p fleet.Policy
	if err := json.Unmarshal(e.Body, &p); err != nil || len(e.Body) > 4*maxBody || len(p.Rules) > fleet.MaxPolicyRules {
		return bailey.Invalid.Wrap(err, "the policy of a gateway cannot be read", "")
	}
	return s.Store.SetPolicyState(ctx, tx, h.ID, []byte(strings.ReplaceAll(string(e.Body), "\\u0000", "?")))
}

// gatewayPolicy is the policy of a gateway beside the newest bundle for it.
type gatewayPolicy struct {
	fleet.Policy
	Name, Anchor, State, Why string
	More                     int
	At                       time.Time
	Bundle                   uint64 // the newest one for it
	Bad                      bool
}

type policyPage struct {
	console.Frame
	Gateways        []gatewayPolicy
	MayReplay       bool
	ReplayURL, Text string
	Bases, Hosts    []choice
	MaxText         string
	Fault, Hint     string
	Replay          *replayResult

	base, host string // as chosen
}

func (s *Server) showPolicy(w http.ResponseWriter, r *http.Request, c *Caller, status int, v policyPage) error {
	ctx, organisation := r.Context(), r.PathValue(ofOrganisation)
	var err error
	if v.Frame, err = s.frameFor(r, c, "/policy", "Policy"); err != nil {
		return err
	}
	if v.Gateways, err = s.gatewayPolicies(ctx, organisation); err != nil {
		return err
	}
	v.MayReplay, v.ReplayURL, v.MaxText = c.Role >= store.Admin, v.Base+"/policy/replay", console.FormatBytes(maxReplayText)
	if v.Hosts, err = s.hostChoices(ctx, organisation, v.host, store.Gateway); err != nil {
		return err
	}
	bundles, err := s.Store.Bundles(ctx, organisation)
	if err != nil {
		return err
	}
	for _, b := range bundles[:min(len(bundles), 20)] {
		v.Bases = append(v.Bases, choicesOf(v.base, strconv.FormatUint(b.Serial, 10))...)
	}
	s.writePage(w, "policy", status, &v)
	return nil
}

// gatewayPolicies compares each gateway with the newest bundle that is for it.
func (s *Server) gatewayPolicies(ctx context.Context, organisation string) ([]gatewayPolicy, error) {
	hosts, err := s.Store.Hosts(ctx, organisation)
	if err != nil {
		return nil, err
	}
	states, err := s.Store.PolicyStates(ctx, organisation)
	if err != nil {
		return nil, err
	}
	offered, err := s.Store.BundleStates(ctx, organisation)
	if err != nil {
		return nil, err
	}
	var all []gatewayPolicy
	for i, h := range hosts {
		if h.Kind != store.Gateway {
			continue
		}
		g := gatewayPolicy{Name: h.Name, Anchor: "gateway-" + strconv.Itoa(i)}
		for _, st := range states {
			if st.Host == h.ID && json.Unmarshal(st.Body, &g.Policy) == nil {
				g.At = st.Changed
			}
		}
		g.More = max(g.Count-len(g.Rules), 0)
		var last fleet.BundleResult
		for _, st := range offered {
			if st.Host == h.ID {
				json.Unmarshal(st.Body, &last)
			}
		}
		newest, err := s.Store.BundleFor(ctx, h)
		if err != nil && bailey.KindOf(err) != bailey.NotFound {
			return nil, err
		}
		g.Bundle = newest.Serial
		g.describeDrift(newest, last)
		all = append(all, g)
	}
	return all, nil
}

// describeDrift says how the rules in use differ from the newest bundle.
func (g *gatewayPolicy) describeDrift(newest store.Bundle, last fleet.BundleResult) {
	digest := ""
	if newest.Serial > 0 {
		if files, err := bundleFiles(newest); err == nil {
			digest = files.Digest()
		}
	}
	switch {
	case g.Policy.Fault != "":
		g.State, g.Why, g.Bad = "nothing is allowed", g.Policy.Fault, true
	case newest.Serial > 0 && last.Serial == newest.Serial && !last.Applied:
		g.State, g.Why, g.Bad = "refused the bundle", last.Fault, true
	case g.At.IsZero():
		g.State, g.Why = "unknown", "it has not reported its rules; a newer version does when it connects"
	case newest.Serial == 0:
		g.State, g.Why = "its own rules", "no bundle is for it"
	case g.Digest == digest:
		g.State = "as the bundle"
	case last.Serial < newest.Serial:
		g.State, g.Why, g.Bad = "differs", "it has not got the newest bundle yet", true
	default:
		g.State, g.Why, g.Bad = "differs", "its rules were changed on its own machine since", true
	}
}

// bundleFiles returns the files of a bundle.
func bundleFiles(b store.Bundle) (f policyfiles.Files, err error) {
	var body fleet.Bundle
	if err := json.Unmarshal(b.Body, &body); err != nil {
		return f, err
	}
	for _, file := range body.Files {
		if err := f.Add(policy.Source{Name: file.Name, Text: []byte(file.Text)}); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Limits of a replay. One runs at a time.
const (
	maxReplayText  = 32 << 10
	maxReplayCalls = 20_000
	replayTime     = 20 * time.Second
	replayDays     = 7
	shownReceipts  = 20 // of each kind of change
)

// replayResult is a report with the places of its receipts.
type replayResult struct {
	review.Report
	Title, Limit  string
	Changes       []replayChange
	Causes, Marks []replayCause
}

type replayChange struct {
	review.Change
	Receipts []receiptRow
	More     int
}

type replayCause struct {
	review.Cause
	URL string
}

// replayPolicy decides the calls of the last days again. It changes nothing, so it leaves no record.
func (s *Server) replayPolicy(w http.ResponseWriter, r *http.Request, c *Caller) error {
	v := policyPage{Text: r.PostFormValue("text"), base: r.PostFormValue("base"), host: r.PostFormValue("host")}
	result, err := s.runReplay(r.Context(), r.PathValue(ofOrganisation), v)
	status := http.StatusOK
	if err != nil {
		s.logFault("policy-replay", err)
		p := asProblem(err)
		v.Fault, v.Hint, status = p.Detail, p.Hint, p.Status
	} else {
		v.Replay = result
	}
	return s.showPolicy(w, r, c, status, v)
}

func (s *Server) runReplay(ctx context.Context, organisation string, v policyPage) (*replayResult, error) {
	if len(v.Text) > maxReplayText || strings.TrimSpace(v.Text) == "" {
		return nil, bailey.Invalid.Errorf("", "give rules of at most %s", console.FormatBytes(maxReplayText))
	}
	if strings.Contains(v.host, "\x00") || len(v.host) > 100 {
		return nil, bailey.NotFound.New("there is no such gateway", "")
	}
	if !s.replaying.TryLock() {
		return nil, bailey.Unavailable.New("another replay is running", "try again in a few seconds")
	}
	defer s.replaying.Unlock()
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return nil, err
	}
	engine, err := s.proposedRules(ctx, organisation, v, catalog)
	if err != nil {
		return nil, err
	}
	p := &pastCalls{s: s, ctx: ctx, organisation: organisation, places: map[bailey.ReceiptID]store.Receipt{},
		rebuild: policyfiles.RequestRebuilder{Catalog: catalog},
		filter: store.ReceiptFilter{Host: v.host, Since: s.Now().Add(-replayDays * 24 * time.Hour), Oldest: true,
			Limit: replayStep}}
	report := review.Replay(engine, p.eachCall)
	if p.err != nil && ctx.Err() == nil {
		return nil, p.err
	}
	return p.describeReport(report), nil
}

// proposedRules loads the proposed rules, alone or beside those of a bundle.
func (s *Server) proposedRules(ctx context.Context, organisation string, v policyPage,
	catalog *pack.Catalog) (*policy.Engine, error) {
	sources := []policy.Source{{Name: "proposed.cedar", Text: []byte(v.Text)}}
	if serial, err := strconv.ParseUint(v.base, 10, 62); err == nil {
		bundles, err := s.Store.Bundles(ctx, organisation)
		if err != nil {
			return nil, err
		}
		found := false
		for _, b := range bundles {
			if b.Serial == serial {
				files, err := bundleFiles(b)
				if err != nil {
					return nil, err
				}
				sources, found = append(sources, files.Rules...), true
			}
		}
		if !found {
			return nil, bailey.NotFound.Errorf("choose another one", "there is no bundle %d", serial)
		}
	}
	return policy.Load(policy.Config{Sources: sources, Actions: policyfiles.Actions(catalog)})
}

// replayStep is how many receipts are in memory at once.
const replayStep = 200

// pastCalls reads receipts of an organisation, the oldest first.
type pastCalls struct {
	s            *Server
	ctx          context.Context
	organisation string
	filter       store.ReceiptFilter
	rebuild      policyfiles.RequestRebuilder
	places       map[bailey.ReceiptID]store.Receipt
	err          error
	cut          bool // more receipts are there than are decided
}

// eachCall yields the calls. It implements an iter.Seq.
func (p *pastCalls) eachCall(yield func(review.Past) bool) {
	for {
		var some []store.Receipt
		if some, p.err = p.s.Store.Receipts(p.ctx, p.organisation, p.filter); p.err != nil {
			p.cut = true
			return
		}
		data, err := p.readData(some)
		if p.err = err; err != nil {
			p.cut = true
			return
		}
		for _, one := range some {
			if len(p.places) == maxReplayCalls || p.ctx.Err() != nil {
				p.cut = true
				return
			}
			past := p.rebuildCall(one, data)
			p.places[past.Receipt] = one
			if !yield(past) {
				return
			}
			p.filter.BeforeStarted, p.filter.BeforeHost, p.filter.BeforeSeq = one.Started, one.Host, one.Seq
		}
		if len(some) < p.filter.Limit {
			return
		}
	}
}

// entryKey is the place of an entry.
type entryKey struct {
	host string
	seq  uint64
}

// readData returns the data of both halves of receipts.
func (p *pastCalls) readData(some []store.Receipt) (map[entryKey]json.RawMessage, error) {
	seqs := map[string][]uint64{}
	for _, one := range some {
		seqs[one.Host] = append(seqs[one.Host], one.Seq, one.OutcomeSeq)
	}
	data := map[entryKey]json.RawMessage{}
	for host, list := range seqs {
		lines, err := p.s.Store.EntriesAt(p.ctx, host, list...)
		if err != nil {
			return nil, err
		}
		for _, e := range lines {
			data[entryKey{host, e.Seq}] = entryData(e.Line)
		}
	}
	return data, nil
}

// rebuildCall reconstructs the request of a call.
func (p *pastCalls) rebuildCall(one store.Receipt, data map[entryKey]json.RawMessage) review.Past {
	r := receipts.Record{Receipt: bailey.Receipt{Seq: one.Seq}}
	err := json.Unmarshal(data[entryKey{one.Host, one.Seq}], &r.Intent)
	if err == nil && one.OutcomeSeq > 0 {
		err = json.Unmarshal(data[entryKey{one.Host, one.OutcomeSeq}], &r.Outcome)
	}
	if err != nil {
		return review.Past{Receipt: bailey.ReceiptID(one.Receipt), Unknown: "its entries are of another version of Bailey"}
	}
	past := p.rebuild.Past(r)
	past.Receipt = bailey.ReceiptID(one.Receipt)
	switch past.Unknown {
	case policyfiles.PastGone:
		past.Unknown = "its capability is of a pack that this server does not have"
	case policyfiles.PastBody:
		past.Unknown = "its arguments were too long for the ledger, and are kept on the host"
	}
	return past
}

// describeReport adds the places of receipts to a report.
func (p *pastCalls) describeReport(report review.Report) *replayResult {
	r := &replayResult{Report: report}
	to := map[string]int{}
	for _, c := range report.Changes {
		to[c.To] += c.Calls
		one := replayChange{Change: c, More: c.More + max(len(c.Receipts)-shownReceipts, 0)}
		for _, id := range c.Receipts[:min(len(c.Receipts), shownReceipts)] {
			one.Receipts = append(one.Receipts, p.s.newReceiptRow(p.organisation, p.places[id]))
		}
		r.Changes = append(r.Changes, one)
	}
	var parts []string
	for _, effect := range []struct{ name, words string }{{"deny", "denied"}, {"ask", "asked about"}, {"allow", "allowed"}} {
		if n := to[effect.name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d calls would be %s", n, effect.words))
		}
	}
	r.Title = cmp.Or(strings.Join(parts, ", "), "No call would be decided differently")
	if p.cut {
		r.Limit = fmt.Sprintf("These are the oldest calls of the %d days: a replay ends after %d calls or %v. "+
			"Choose one gateway to see more of it.", replayDays, maxReplayCalls, replayTime)
	}
	causes := func(list []review.Cause) (out []replayCause) {
		for _, c := range list {
			out = append(out, replayCause{c, p.s.receiptLink(p.organisation, p.places[c.First])})
		}
		return out
	}
	r.Causes, r.Marks = causes(report.Causes), causes(report.Marked)
	return r
}
