package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/receipts"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// showStatus is answered inside the gateway.
func (s *Server) showStatus(ctx context.Context, _ localapi.None, from gateway.Caller) (out apitype.Status, err error) {
	at, err := s.ledger.Stand()
	if err != nil {
		return out, err
	}
	frail, err := ledger.Durability(s.home.Ledger())
	if err != nil {
		return out, err
	}
	out = apitype.Status{
		Running: true, Home: string(s.home), Policy: s.Rules.Engine().Digest(), Packs: s.packVersions(),
		Gateway: &apitype.GatewayStatus{PID: os.Getpid(), Version: apitype.Version, Protocol: localapi.Protocol,
			Since: s.since.UTC()},
		Ledger: &apitype.LedgerStatus{Dir: s.home.Ledger(), OK: at.Bad == nil, Verified: at.Verified,
			Segments: at.Segments, Entries: at.Entries,
			Open: at.Open, Head: at.Head.String(), Durable: frail == "", Frail: frail},
		Cage: NewCageStatus(s.cages.Diagnose(ctx)),
	}
	if s.Bare {
		out.Cage = bareCage()
	}
	out.Broker = askBroker(ctx, s.settings.Applied().Broker)
	if out.Broker != nil {
		out.Broker.Key = s.newKeyring(s.home).keyLocation()
	}
	out.ControlPlanePages = s.settings.Applied().ControlPlanePages
	out.Redaction = s.settings.Applied().Redaction
	s.Rules.fillStatus(&out)
	out.Hooks = s.hooks.Status()
	_, out.Packed = packstore.LoadInstalled(s.home, s.packed.known.Load())
	out.Profile = ProfileStatus(s.shelf.profiles)
	out.Notify = s.notifyState()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	if n, until := s.kept.Count(); n > 0 {
		out.Kept = &apitype.KeptStatus{Sessions: n, Until: until}
	}
	out.Asked = newAskedStatus(s.Queue)
	if st, err := s.settings.State(""); err != nil || st.Changed {
		out.Settings = settings.FileName + " differs from what was applied, and the next gateway will not use it"
	}
	out.Calls, out.Sessions = s.live.Now()
	out.Agents = apitype.NewAgentStatus(out.Sessions)
	if err := s.workspaces.Fit(from.Dir); err != nil {
		out.Workspace = apitype.WithHint(err)
	}
	return out, nil
}

// NewCageStatus returns the kind "full" if every layer of an ordinary call works, and "landlock" if every layer of the
// reduced cage works. A missing proc-private layer is ignored, because only some manifests need a /proc. So is a
// missing cgroup layer, because the watcher replaces it.
func NewCageStatus(layers []jail.Layer) *apitype.CageStatus {
	c := &apitype.CageStatus{Kind: "full", Layers: []string{}}
	for _, l := range layers {
		if l.Err == nil {
			c.Layers = append(c.Layers, l.Name)
			continue
		}
		c.Problems = append(c.Problems, apitype.WithHint(l.Err))
		switch {
		case l.Name == "full" && c.Kind != "": // the layer full comes first
			c.Kind = "landlock"
		case l.Name != "proc-private" && l.Name != "cgroup":
			c.Kind = ""
		}
	}
	return c
}

// newAskedStatus returns nil if all counts are zero.
func newAskedStatus(q *approve.Queue) *apitype.AskedStatus {
	s := apitype.AskedStatus{Grants: len(q.Grants())}
	for _, o := range q.Open() {
		switch {
		case !o.Granted.IsZero():
			s.Granted++
			continue
		case s.Open == 0:
			s.Oldest = o.AskedAt.UTC()
		}
		s.Open++
	}
	if s == (apitype.AskedStatus{}) {
		return nil
	}
	return &s
}

func (s *Server) showPresent(ctx context.Context, _ localapi.None, from gateway.Caller) (apitype.Present, error) {
	list, err := s.listQuestions(ctx, apitype.QuestionRequest{}, from)
	if err != nil {
		return apitype.Present{}, err
	}
	out := apitype.Present{QuestionList: list}
	out.Calls, _ = s.live.Now()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	out.Wraps = s.wrapsNow()
	out.Wraps.Refused = apitype.Last(out.Wraps.Refused, shownRefusals)
	return out, nil
}

// shownRefusals is the maximum number of refusals of agents in the agent jail that a screen shows. wrap --log shows
// all.
const shownRefusals = 32

func (s *Server) showMetrics(context.Context, localapi.None, gateway.Caller) (apitype.MetricsReply, error) {
	entries, segments, bytes, err := s.ledger.Extent()
	if err != nil {
		return apitype.MetricsReply{}, err
	}
	calls, sessions := s.live.Now()
	var out strings.Builder
	err = s.meter.Write(&out, gateway.Gauges{Entries: entries, Segments: uint64(segments), Bytes: uint64(bytes),
		Open: len(calls), Sessions: len(sessions), Suppressed: s.limit.Refused()})
	return apitype.MetricsReply{OK: err == nil, Text: out.String()}, err
}

// sideEffectClass returns the side effect class of a capability.
func (s *Server) sideEffectClass(id bailey.CapabilityID) string {
	m, err := s.shelf.Catalog().Lookup(id)
	if err != nil {
		return "unknown"
	}
	return string(m.SideEffect)
}

// recordStage records the duration of each stage of a call.
func (s *Server) recordStage(step gate.Step) {
	s.meter.Stage(step.Stage, step.Took)
	s.tracer.Step(step)
}

// openTracer opens the trace file that the environment names. If name is empty, there is no tracer.
func (s *Server) openTracer(name string) error {
	if name == "" {
		return nil
	}
	refused := func(err error) error {
		return bailey.Invalid.Wrap(err, localapi.TraceVariable+" names "+terminal.Shown(name)+": no spans are written",
			"use an absolute path of a file that does not exist, or is regular with mode 0600")
	}
	if !filepath.IsAbs(name) {
		return refused(errors.New("it is not an absolute path"))
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|safefile.NoFollow|safefile.NoWait, 0o600)
	if err != nil {
		return refused(err)
	}
	s.closeAtEnd("spans", f.Close)
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || safefile.Wide(info)) {
		err = fmt.Errorf("it is %v", info.Mode())
	}
	if err != nil {
		return refused(err)
	}
	s.tracer = gateway.NewTracer(f, s.Log)
	return nil
}

func (s *Server) listBudgets(context.Context, localapi.None, gateway.Caller) (apitype.Spendings, error) {
	return apitype.Spendings{Budgets: s.budgets.State()}, nil
}

// recallPatience limits how long a starting gateway makes clients wait for the past usage of budgets. After that it
// serves them, but denies the calls that a budget limits until the usage is known. A million calls take minutes to
// read, and the kill switch must not wait for them.
const recallPatience = time.Second

// holdBudgets blocks every call that a budget limits until rememberBudgets is done.
func (s *Server) holdBudgets() {
	if s.budgets.Memory() > 0 {
		s.budgets.Hold(bailey.Unavailable.New("the use of the budgets is still being read from the ledger",
			"call again in a minute"))
	}
}

// recallBudgets reads the past usage, then unblocks the calls. If it fails, they stay blocked. An operator can still
// apply a policy without budgets.
func (s *Server) recallBudgets(ctx context.Context) {
	err := s.rememberBudgets(ctx)
	if s.budgets.Hold(err); err != nil {
		s.Log.Error("the use of the budgets is not known", "err", err)
	}
}

// rememberBudgets counts the calls that other gateways handled earlier, as far back as a budget looks.
func (s *Server) rememberBudgets(ctx context.Context) error {
	memory := s.budgets.Memory()
	if memory == 0 {
		return nil
	}
	f := receipts.Filter{Since: time.Now().Add(-memory), Until: s.since, Oldest: true, Limit: receipts.MaxLimit}
	for {
		page, err := s.index.Find(ctx, f)
		if err != nil {
			return bailey.Unavailable.Wrap(err, "cannot read the use of the budgets from the ledger",
				"run bailey audit verify")
		}
		for _, r := range page.Records {
			in, o := r.Intent, r.Outcome
			if f.After = r.Seq; o == nil || o.Executed != nil && !*o.Executed {
				continue
			}
			input, output := o.Model.Tokens()
			s.budgets.Remember(bailey.Request{Capability: in.Capability,
				Principal: bailey.Principal{Agent: in.Agent, Person: in.Person}}, in.StartedAt,
				gate.Use{Wall: time.Duration(o.RanMillis) * time.Millisecond,
					CPU: time.Duration(o.CPUMillis) * time.Millisecond, Output: o.StdoutBytes + o.StderrBytes,
					InputTokens: input, OutputTokens: output, MicroUSD: o.Model.Price()})
		}
		if !page.More {
			return nil
		}
	}
}

// Rules returns the built-in policy of a home. On a platform without a cage it includes the rules for that case.
func Rules(bare bool) []policy.Source {
	if bare {
		return []policy.Source{policy.Starter(), policy.Agents(), policy.Sandboxes(), policy.Elsewhere()}
	}
	return []policy.Source{policy.Starter(), policy.Agents(), policy.Sandboxes()}
}

// bareCage returns the cage status on a platform without a cage.
func bareCage() *apitype.CageStatus {
	return &apitype.CageStatus{Kind: "none", Layers: []string{}, Problems: []string{apitype.Disabled}}
}

// killCalls handles `bailey kill`. It must complete even if the client disconnects.
func (s *Server) killCalls(ctx context.Context, r apitype.KillRequest, from gateway.Caller) (apitype.Killed, error) {
	reason := s.redaction.Text(from.Session.ID, r.Reason)
	if len(reason) > 2*apitype.MaxKillReason {
		reason = ""
	}
	return s.kill.Kill(context.WithoutCancel(ctx), reason, from.Principal.Person)
}

func (s *Server) resumeCalls(ctx context.Context, _ localapi.None, from gateway.Caller) (apitype.Killed, error) {
	return s.kill.Resume(ctx, gateway.Resumed{Operator: from.Operator, Person: from.Principal.Person})
}

func (s *Server) showKilled(context.Context, localapi.None, gateway.Caller) (apitype.Killed, error) {
	return s.kill.State(), nil
}
