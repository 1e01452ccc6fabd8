// Package server is the gateway process. It constructs and connects the parts of a gateway, and handles the queries and
// commands of its clients. server.go has the construction, handlers.go the table of handlers.
package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/approve"
	"bailey/internal/enrol"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/gitsign"
	"bailey/internal/hostapi"
	"bailey/internal/jail"
	"bailey/internal/ledger"
	"bailey/internal/ledger/index"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/modelproxy"
	"bailey/internal/notify"
	"bailey/internal/packstore"
	"bailey/internal/policy/review"
	"bailey/internal/receipts"
	"bailey/internal/toolchain"
	"bailey/internal/toolsearch"
	"bailey/internal/workspace"
	"bailey/internal/wrap"
	"bailey/pack"
)

// Server contains all connected parts of a gateway.
type Server struct {
	ledger  *ledger.Log
	scribe  *eventLog // writes all events
	index   *index.Index
	notary  *notary.Notary
	Catalog *pack.Catalog // initial catalog; if nil, the built-in and installed packs
	shelf   *activeCatalog
	Rules   *policyStore
	kill    *gateway.KillSwitch // checked before the gate and its policy
	agents  *gateway.Agents     // checked before the policy
	budgets *gateway.Budgets
	Queue   *approve.Queue
	sender  *notify.Sender // notifies people of questions
	cages   *jail.Jail
	hooks   hookGate
	pins    *gateway.Pins     // checks programs before cages run them
	finder  *toolchain.Finder // finds tools in the person's home
	hosts   *hostAccess       // source hosts
	model   *modelproxy.Proxy // requests to models
	fleet   *enrol.Keeper     // connects to a control plane
	// enrolled is the enrolment at a control plane, nil until there is one.
	enrolled atomic.Pointer[enrol.Enrolment]
	// the same for capabilities without a cage, if the manifest and a rule allow it
	open    *gateway.Pins
	Gate    *gate.Gate
	limit   *gateway.Limit // before the gate, for every interface
	gateway *gateway.Gateway
	closers []closer
	Log     *slog.Logger

	commands   Commands
	home       localapi.Home
	redaction  *gateway.Redaction
	kept       *gateway.Kept
	workspaces *workspace.Workspaces
	settings   *gateway.Settings
	packed     *packStore
	hook       agenthook.Config
	live       gateway.Live
	sessions   *gateway.Sessions
	meter      gateway.Meter
	tracer     *gateway.Tracer // nil if tracing is off
	Bare       bool            // the platform has no isolation
	since      time.Time
	reports    controlPlane // to the control plane; nil in tests without one
}

// Commands lists the commands of bailey. An agent's hook must know which of them an agent may use.
type Commands struct{ All, ForAgents []string }

// New connects the parts of a gateway. It opens the socket last, so that each client that connects is served.
func New(ctx context.Context, home localapi.Home, names Commands, r *gateway.Redaction,
	log *slog.Logger) (s *Server, err error) {
	s = &Server{commands: names, Log: log, home: home, redaction: r, since: time.Now(), Bare: jail.Bare}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := home.Create(); err != nil {
		return s, err
	}
	unlock, err := home.Own()
	if err != nil {
		return s, err
	}
	s.closeAtEnd("home", func() error { unlock(); return nil })
	left, err := wrap.Sweep(home.Caches())
	if err != nil {
		return s, err
	}
	for _, words := range left {
		log.Warn("a tool was killed", "left", words)
	}
	if err := s.openTracer(os.Getenv(localapi.TraceVariable)); err != nil {
		return s, err
	}
	if s.workspaces, err = s.NewGate(home, s.recordStage); err != nil {
		return s, err
	}
	s.packed = openPackBook(home, s.scribe.lore.Packs, s.scribe.recordEvent, s.useCatalog, log)
	s.holdBudgets()
	s.openFleet()
	s.hook = s.judgeConfig()
	s.gateway, err = gateway.Listen(gateway.Config{
		Home: home, Gate: s.limit, Workspaces: s.workspaces, Redaction: s.redaction, Note: s.scribe.recordEvent,
		Log:      log,
		Handlers: s.handlers(), Means: s.resolveArgv, MCP: s.serveMCP, Live: &s.live, Kept: s.kept,
		Sessions: s.sessions,
		Begin:    s.hooks.runSessionStart, End: s.hooks.runSessionEnd, Agents: s.agents,
		TokenRequired: func() bool { return s.settings.Applied().Agents.Required },
	})
	if err != nil {
		return s, err
	}
	if s.gateway.Web, err = s.newWebListener(); err != nil {
		return s, err
	}
	s.gateway.Model = modelListener{s.model}
	return s, s.scribe.recordEvent(ctx, "gateway.start", map[string]any{
		"version": apitype.Version, "pid": os.Getpid(), "policy": s.Rules.Engine().Digest(), "packs": s.packVersions(),
		"manifests": s.manifestsDigest(), "settings": s.settings.Digest(), "hooks": s.hooks.Applied().Digest,
	})
}

// NewGate connects the gate and its parts. It loads packs and policy unless they are already set. observe is called after
// each stage.
func (s *Server) NewGate(home localapi.Home, observe func(gate.Step)) (*workspace.Workspaces, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	signed, err := apitype.KeptNote(home.Checkpoint())
	if err != nil {
		return nil, err
	}
	past := newReplay()
	if s.ledger, err = ledger.New(ledger.Config{Dir: home.Ledger(), Host: host, Log: s.Log, Newest: signed,
		Read: past.Read}); err != nil {
		return nil, err
	}
	s.closeAtEnd("ledger", s.ledger.Close)
	if s.scribe, err = openScribe(s.ledger, past, s.Log); err != nil {
		return nil, err
	}
	homes := workspace.Homes()
	masks := workspace.Masks(string(home), homes)
	workspaces := workspace.NewWorkspaces(masks, homes)
	if s.redaction == nil {
		s.redaction = gateway.NewRedaction()
	}
	s.redaction.Tell = s.meter.Redacted
	if s.settings, err = gateway.OpenSettings(home, workspaces, s.redaction, s.scribe.lore.Settings,
		s.scribe.recordEvent, s.Log); err != nil {
		return nil, err
	}
	if s.notary, err = openNotary(home, s.ledger, signed, s.newKeyring(home)); err != nil {
		return nil, err
	}
	s.index = index.New(index.Config{Path: home.Index(), Ledger: s.ledger, Log: s.Log})
	s.closeAtEnd("index of receipts", s.index.Close)
	if s.Catalog == nil {
		var found []packstore.Finding
		if s.Catalog, found, err = openCatalog(home, s.scribe.lore.Packs); err != nil {
			return nil, err
		}
		for _, f := range found {
			s.Log.Error("packs", "finding", f.Text, "cure", f.Cure)
		}
	}
	s.budgets = gateway.NewBudgets(nil)
	s.kill = gateway.NewKillSwitch(s.scribe.lore.Killed, s.scribe.recordEvent)
	s.kill.Restore(s.scribe.lore.Orders)
	s.agents = gateway.NewAgents(s.scribe.lore.Agents, s.scribe.recordEvent)
	if s.Rules == nil {
		s.Rules, err = openPolicyStore(&policyStore{home: home, catalog: s.Catalog, bare: s.Bare, meter: s.budgets, signers: s.policySigners, note: s.scribe.recordEvent, log: s.Log},
			s.scribe.lore.Policy)
		if err != nil {
			return nil, err
		}
	}
	if s.cages, err = OpenJail(masks, func(err error) { s.Log.Warn("the jail", "err", err) }); err != nil {
		return nil, err
	}
	s.closeAtEnd("jail", s.cages.Close)
	none, err := jail.NewNone(jail.Config{Mask: masks})
	if err != nil {
		return nil, err
	}
	if err := s.openHooks(home, masks); err != nil {
		return nil, err
	}
	s.kept = gateway.NewKept(s.redaction)
	s.sessions = gateway.NewSessions(s.scribe.lore.Sessions, s.scribe.recordEvent)
	salt, err := openSalt(home)
	if err != nil {
		return nil, err
	}
	s.sender = notify.New(notify.Config{Settings: s.notifySettings, Key: func() (notify.Key, error) { return readNotifyKey(home) }, Log: s.Log})
	s.Queue = approve.New(approve.Config{Note: s.scribe.recordEvent, Prove: s.approverOfAnswer, Tell: s.tellQuestion,
		Key: salt, Past: s.scribe.lore.Asked, Log: s.Log})
	s.finder = toolchain.NewFinder(workspaces.Written)
	s.hosts = newHostAccess(home, s.brokerSetting)
	s.closeAtEnd("hosts", func() error { s.hosts.pool.Close(); return nil })
	s.kill.WithdrawAgent = s.withdrawAgent
	s.kill.Withdraw = func(reason string) {
		s.hosts.pool.CloseAll()
		s.Queue.Withdraw(reason, func(bailey.Question) bool { return true })
		s.endEveryGrant(reason)
	}
	s.shelf = newShelf(s.Catalog,
		gateway.OpenProfiles(home, workspaces, s.scribe.lore.Profiles, s.scribe.recordEvent, s.Log),
		func(command string) bool { return s.cages.Installed(command) || s.finder.Installed(command) })
	s.shelf.image = func(pack string) string { return s.settings.Applied().MicroVM.ImageFor(pack) }
	s.shelf.noBroker = func() bool { return s.settings.Applied().Broker == nil }
	return workspaces, s.connectGate(home, none, gate.Config{
		Catalog: s.shelf, Places: workspaces, Hooks: s.hooks, Budgets: s.budgets, Lender: brokerLender{s.brokerClient},
		Egress: EgressPlanner{Settings: s.networkSettings}, Redactor: s.redaction,
		Signer: gitSigner{}, Host: host, Log: s.Log, Observe: observe,
	})
}

// gitSigner signs with the keys of the person for whom the gateway runs.
type gitSigner struct{ gitsign.Signer }

func (g gitSigner) Prepare(ctx context.Context, p pack.GitPerson, s pack.Signing) (gate.Signing, error) {
	signing, err := g.Signer.Prepare(ctx, p, s)
	if err != nil {
		return nil, err
	}
	return signing, nil
}

// connectGate puts everything that stands around gate.Do in its place. Each chain is written from the outside in, and
// its order is a security property: TestCallPath holds it.
func (s *Server) connectGate(home localapi.Home, none bailey.Runner, c gate.Config) (err error) {
	// The live view must not show a call whose intent is not recorded, so it asks the others first.
	c.Ledger = s.live.Ledger(s.tracer.Ledger(s.meter.Ledger(s.ledger, s.sideEffectClass)))
	c.Policy = s.guardPolicy(s.Rules)
	c.Approver = sessionApprover{s.Queue, s.sessions}
	// Programs are compared with their recorded digests after the runner has planned, so that what was compared runs.
	s.pins = gateway.NewPins(wrap.NewWorks(s.cages, home.Caches(), s.isJailed), s.scribe.lore.Pins,
		s.scribe.recordEvent)
	if self, err := os.Executable(); err == nil {
		s.pins.TrustSelf(self)
	}
	// without a cage files cannot be protected
	s.open = s.pins.Beside(wrap.NewWorks(none, home.Caches(), func(bailey.SessionID) bool { return false }))
	// Each version of a program has a pin of its own, so toolchains are found first.
	c.Runners = map[pack.Isolation]bailey.Runner{pack.Jail: toolchain.NewRunner(s.pins, s.finder), pack.Open: s.open,
		pack.Agent: gate.Own{}, pack.Host: s.hosts.newHostRunner(), pack.Sandbox: s.newSandboxRunner(home),
		pack.MicroVM: s.newCallRunner(home),
		pack.Model:   modelproxy.Runner{Proxy: func() *modelproxy.Proxy { return s.model }}}
	if s.Gate, err = gate.New(c); err != nil {
		return err
	}
	// A call that is over its rate must not reach the kill switch, which keeps each running call in memory.
	s.kill.Gate = s.Gate
	s.limit = gateway.NewLimit(gateway.LimitConfig{Gate: s.kill, Note: s.scribe.recordEvent, Log: s.Log})
	s.closeAtEnd("limit", func() error { s.limit.Close(); return nil })
	return s.openModel()
}

// OpenJail returns the source of cages, for the gateway and for commands such as `jail run` in their own process.
func OpenJail(masks []string, warn func(error)) (*jail.Jail, error) {
	return jail.New(jail.Config{Mask: masks, Warn: warn})
}

// policySigners returns the trusted keys of the settings.
func (s *Server) policySigners() []string {
	return s.settings.Applied().Signers
}

// manifestsDigest returns a digest over all capabilities: SHA-256, in hex, of the sorted lines with the id and the manifest
// digest of each capability.
func (s *Server) manifestsDigest() string {
	var lines []string
	for _, m := range s.shelf.Catalog().All() {
		lines = append(lines, string(m.ID)+" "+m.Digest+"\n")
	}
	slices.Sort(lines)
	return apitype.DigestOf(strings.Join(lines, ""))
}

func (s *Server) packVersions() (list []string) {
	for _, m := range s.shelf.Catalog().All() {
		if name := m.Pack + " " + m.Version; !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// Serve runs until ctx ends or the gateway stops by itself. Then it closes all parts in order.
func (s *Server) Serve(ctx context.Context) error {
	defer s.Close()
	g, ctx := errgroup.WithContext(ctx)
	questions, stop := context.WithCancel(ctx)
	known := make(chan struct{})
	g.Go(func() error {
		defer close(known)
		s.recallBudgets(ctx)
		return nil
	})
	select { // clients that have already connected wait during this time
	case <-known:
	case <-time.After(recallPatience):
	}
	g.Go(func() error {
		defer stop() // questions must outlive the calls that asked them
		return s.gateway.Run(ctx)
	})
	g.Go(func() error { return s.Queue.Run(questions) })
	g.Go(func() error { return s.sender.Run(ctx) })
	g.Go(func() error { return s.index.Run(ctx) })
	g.Go(func() error { return s.fleet.Run(ctx) })
	g.Go(func() error { return s.scribe.writeSnapshots(ctx) })
	return g.Wait()
}

// Close closes the parts that are open, the newest first.
func (s *Server) Close() {
	for _, part := range slices.Backward(s.closers) {
		if err := part.close(); err != nil {
			s.Log.Error("closing the "+part.name, "err", err)
		}
	}
	s.closers = nil
}

// closer closes a part when the gateway ends.
type closer struct {
	name  string
	close func() error
}

func (s *Server) closeAtEnd(name string, close func() error) {
	s.closers = append(s.closers, closer{name, close})
}

// serveMCP serves MCP on one connection.
func (s *Server) serveMCP(ctx context.Context, from bailey.Call, conn io.ReadWriteCloser) error {
	return mcp.Serve(ctx, s.mcpConfig(from, true), conn)
}

// isJailed reports whether the session belongs to an agent in the agent jail.
func (s *Server) isJailed(id bailey.SessionID) bool {
	_, jailed := s.sessions.Wall(id)
	return jailed
}

func (s *Server) mcpConfig(from bailey.Call, stdio bool) mcp.Config {
	return mcp.Config{
		Gate: mcpBackend{s, stdio}, Principal: from.Principal, Session: from.Session, Dir: from.Dir,
		Version: apitype.Version, Log: s.Log,
		Listed: s.settings.Applied().Agents.Listed,
		Hide:   func(text string) string { return s.redaction.Text(from.Session.ID, text) },
	}
}

// guardPolicy returns p behind two checks that deny whatever the policy decides: the kill switch, and the scope of the
// token.
func (s *Server) guardPolicy(p gate.Policy) gate.Policy { return s.kill.Before(s.agents.Before(p)) }

// newWebListener returns the interface for MCP over HTTP.
func (s *Server) newWebListener() (gateway.Web, error) {
	door, err := mcp.NewHTTP(mcp.HTTPConfig{
		Admit: func(bearer string) (mcp.Caller, error) {
			t, err := s.agents.Admit(bearer)
			return mcp.Caller{Principal: bailey.Principal{Agent: t.Agent, Token: t.ID}}, err
		},
		Enter: func(ctx context.Context, c mcp.Caller) (mcp.Config, func(), error) {
			from, leave, err := s.gateway.Enter(ctx, c.Principal, c.Dir)
			return s.mcpConfig(from, false), leave, err
		},
		Hide: func(text string) string { // used before a session exists
			id := bailey.NewSessionID()
			defer s.redaction.End(id)
			return s.redaction.Text(id, text)
		},
		Log: s.Log,
	})
	return webListener{door}, err
}

// webListener decodes the description that the listener sent with the connection.
type webListener struct{ *mcp.HTTP }

func (w webListener) Serve(l net.Listener) error {
	return w.HTTP.Serve(l, func(c net.Conn) (f mcp.Front) {
		if c, ok := c.(*gateway.WebConn); ok {
			json.Unmarshal(c.Front, &f) // if it cannot be decoded, nothing is allowed
			f.Dir = c.Dir
		}
		return f
	})
}

// mcpBackend gives the MCP interface access to the stack.
type mcpBackend struct {
	s     *Server
	stdio bool // the client is connected through bailey serve, not HTTP
}

func (d mcpBackend) Do(ctx context.Context, call bailey.Call) bailey.Result {
	return d.s.limit.Do(ctx, call)
}

// Tools omits tools that would be denied for every input, because an agent tries each tool that it sees.
func (d mcpBackend) Tools(_ context.Context, p bailey.Principal) []mcp.Tool {
	rules := d.s.Rules.Engine()
	var tools []mcp.Tool
	for _, m := range d.s.shelf.Present() {
		// agents have their own tools for the capabilities of [pack.Agent]
		if m.Isolation == pack.Agent || m.Isolation == pack.Model || rules.Never(m.ID, p.Agent) ||
			d.s.agents.Allows(p, m.ID) != nil || m.Isolation == pack.Host && !d.s.hosts.hasPrepared() ||
			m.Isolation == pack.Sandbox && !hostapi.Installed() || d.s.hasMissingService(m) {
			continue
		}
		tools = append(tools, mcp.Tool{
			ID: m.ID, Each: d.eachHost(m), Description: agentDescription(m), InputSchema: m.InputSchema(), OutputSchema: m.OutputShape(),
			// clients run such tools without asking
			ReadOnly:    (m.SideEffect == pack.None || m.SideEffect == pack.ReadOnly) && !m.Uncaged(),
			Destructive: m.SideEffect == pack.Destructive,
		})
	}
	return tools
}

// eachHost lets an agent name several hosts at once.
func (d mcpBackend) eachHost(m *pack.Capability) *mcp.Each {
	if m.Isolation != pack.Host {
		return nil
	}
	return &mcp.Each{Input: "host", List: "hosts", Expand: d.s.hosts.expandNames,
		About: "instead of host: several hosts, each with a call and a receipt of its own. KEY=VALUE stands for all prepared hosts with this label"}
}

func (d mcpBackend) Search(_ context.Context, words string) (ids []bailey.CapabilityID) {
	for _, m := range toolsearch.Search(d.s.shelf.Catalog(), words, 0) {
		ids = append(ids, m.Capability.ID)
	}
	return ids
}

// Receipts reads the ledger, because an earlier gateway may have written some.
func (d mcpBackend) Receipts(ctx context.Context, of bailey.SessionID, most int) (list []mcp.Receipt, err error) {
	page, err := d.s.index.Find(ctx, receipts.Filter{Session: of, Limit: most})
	for _, r := range page.Records {
		one := mcp.Receipt{ID: r.Intent.Receipt, Capability: r.Intent.Capability, Started: r.Intent.StartedAt}
		if r.Outcome != nil {
			one.Status = r.Outcome.Status
		}
		list = append(list, one)
	}
	return list, err
}

// Receipt returns a receipt without its stored bodies: the agent already received them.
func (d mcpBackend) Receipt(ctx context.Context, of bailey.SessionID, id bailey.ReceiptID) (json.RawMessage, error) {
	if !apitype.Possible(id) {
		return nil, apitype.NoReceipt(id)
	}
	page, err := d.s.index.Find(ctx, receipts.Filter{ID: id, Session: of, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 || page.Records[0].Intent.Session != of {
		return nil, apitype.NoReceipt(id)
	}
	return json.Marshal(page.Records[0])
}

// agentDescription returns the description of a capability for agents. If it runs without a cage, the description always says
// so.
func agentDescription(m *pack.Capability) string {
	if !m.Uncaged() {
		return m.Description
	}
	return strings.TrimSpace(m.Description + "\n\nIt runs without a jail, with all rights of its user.")
}

// hasMissingService reports whether a call needs a broker or a daemon that is not available.
func (s *Server) hasMissingService(m *pack.Capability) bool {
	if len(m.RequiredWants()) > 0 && s.settings.Applied().Broker == nil {
		return true
	}
	api := m.API()
	if api == nil {
		return false
	}
	_, err := os.Stat(daemonPath(*api, s.networkSettings()))
	return err != nil
}

func (s *Server) explainCall(ctx context.Context, asked localapi.CallQuery,
	from gateway.Caller) (x review.Explanation, err error) {
	call := from.Call
	call.Capability, call.Input, call.Text = asked.Capability, asked.Input, asked.Text
	r, err := s.Gate.Request(ctx, call)
	if err != nil {
		return x, err
	}
	x = review.Explain(s.Rules.Engine(), r)
	// the kill switch is set, or no policy could be loaded
	if d := s.guardPolicy(s.Rules).Decide(r); d.Effect.String() != x.Outcome {
		x = review.Explanation{Capability: x.Capability, Outcome: d.Effect.String(), Reason: d.Reason, Hint: d.Hint,
			Rules: []review.Cited{}, Policy: x.Policy}
	}
	return x, nil
}

// NewLog returns the gateway's log. Errors and panics can carry data of calls into it, so each record is redacted.
func NewLog(r *gateway.Redaction, to io.Writer) *slog.Logger {
	return slog.New(r.Log(slog.NewTextHandler(to, nil)))
}
