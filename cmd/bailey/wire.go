package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/judge"
	"bailey/internal/ledger"
	"bailey/internal/mcp"
	"bailey/internal/notify"
	"bailey/internal/policy"
	"bailey/internal/receipts"
	"bailey/internal/wire"
	"bailey/internal/wrap"
	"bailey/pack"
)

// stack contains all connected parts of a gateway.
type stack struct {
	ledger  *ledger.Log
	scribe  *scribe // writes all events
	index   *ledger.Index
	notary  *ledger.Notary
	catalog *pack.Catalog // initial catalog; if nil, the built-in and installed packs
	shelf   *shelf
	rules   *rulebook
	kill    *gateway.KillSwitch // checked before the gate and its policy
	agents  *gateway.Agents     // checked before the policy
	budgets *gateway.Budgets
	queue   *approve.Queue
	sender  *notify.Sender // notifies people of questions
	cages   *jail.Jail
	hooks   hookGate
	pins    *gateway.Pins // checks programs before cages run them
	// the same for capabilities without a cage, if the manifest and a rule allow it
	open    *gateway.Pins
	gate    *gate.Gate
	limit   *gateway.Limit // before the gate, for every interface
	gateway *gateway.Gateway
	unlock  func()
	log     *slog.Logger

	commands   commandNames
	home       wire.Home
	redaction  *gateway.Redaction
	kept       *gateway.Kept
	workspaces *gateway.Workspaces
	desk       *desk
	packed     *packBook
	hook       judge.Config
	live       gateway.Live
	sessions   *gateway.Sessions
	meter      gateway.Meter
	tracer     *gateway.Tracer // nil if tracing is off
	traces     *os.File
	bare       bool // the platform has no isolation
	since      time.Time
}

// commandNames lists the commands of bailey. An agent's hook must know which of them an agent may use.
type commandNames struct{ All, ForAgents []string }

// build connects the parts of a gateway. It opens the socket last, so that each client that connects is served.
func build(ctx context.Context, home wire.Home, names commandNames, r *gateway.Redaction, log *slog.Logger) (s *stack, err error) {
	s = &stack{commands: names, log: log, home: home, redaction: r, since: time.Now(), bare: jail.Bare}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := home.Create(); err != nil {
		return s, err
	}
	if s.unlock, err = home.Own(); err != nil {
		return s, err
	}
	left, err := wrap.Sweep(home.Caches())
	if err != nil {
		return s, err
	}
	for _, words := range left {
		log.Warn("a tool that was killed", "left", words)
	}
	if s.tracer, s.traces, err = openTracer(os.Getenv(wire.TraceVariable), log); err != nil {
		return s, err
	}
	if s.workspaces, err = s.spine(home, s.observe); err != nil {
		return s, err
	}
	if s.desk, err = openDesk(home, s.workspaces, s.redaction, s.scribe.lore, s.scribe.note, log); err != nil {
		return s, err
	}
	s.packed = openPackBook(home, s.scribe.lore.Packs, s.scribe.note, s.stock, log)
	s.holdBudgets()
	s.limit = gateway.NewLimit(gateway.LimitConfig{Gate: s.kill, Note: s.scribe.note, Log: log})
	s.hook = s.judging()
	s.gateway, err = gateway.Listen(gateway.Config{
		Home: home, Gate: s.limit, Workspaces: s.workspaces, Redaction: s.redaction, Note: s.scribe.note, Log: log,
		Looks: s.looks(), Acts: s.acts(), Means: s.mean, MCP: s.mcp, Live: &s.live, Kept: s.kept, Sessions: s.sessions,
		Begin: s.hooks.begin, End: s.hooks.end, Agents: s.agents,
		TokenRequired: func() bool { return s.desk.settings.Applied().Agents.Required },
	})
	if err != nil {
		return s, err
	}
	if s.gateway.Web, err = s.web(); err != nil {
		return s, err
	}
	return s, s.scribe.note(ctx, "gateway.start", map[string]any{
		"version": version, "pid": os.Getpid(), "policy": s.rules.Engine().Digest(), "packs": s.packs(),
		"manifests": s.manifests(), "settings": s.desk.settings.Digest(), "hooks": s.hooks.book.Applied().Digest,
	})
}

// spine connects the gate and its parts. It loads packs and policy unless they are already set. observe is called after
// each stage.
func (s *stack) spine(home wire.Home, observe func(gate.Step)) (*gateway.Workspaces, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	signed, err := keptNote(home.Checkpoint())
	if err != nil {
		return nil, err
	}
	past := newRecall()
	if s.ledger, err = ledger.New(ledger.Config{Dir: home.Ledger(), Host: host, Log: s.log, Newest: signed, Read: past.Read}); err != nil {
		return nil, err
	}
	if s.scribe, err = openScribe(s.ledger, past, s.log); err != nil {
		return nil, err
	}
	if s.notary, err = openNotary(home, s.ledger, signed, s.keyring(home)); err != nil {
		return nil, err
	}
	s.index = ledger.NewIndex(ledger.IndexConfig{Path: home.Index(), Ledger: s.ledger, Log: s.log})
	if s.catalog == nil {
		var found []packFinding
		if s.catalog, found, err = openCatalog(home, s.scribe.lore.Packs); err != nil {
			return nil, err
		}
		for _, f := range found {
			s.log.Error("packs", "finding", f.Text, "cure", f.Cure)
		}
	}
	s.budgets = gateway.NewBudgets(nil)
	s.kill = gateway.NewKillSwitch(s.scribe.lore.Killed, s.scribe.note)
	s.agents = gateway.NewAgents(s.scribe.lore.Agents, s.scribe.note)
	if s.rules == nil {
		s.rules, err = openRulebook(&rulebook{home: home, catalog: s.catalog, bare: s.bare, meter: s.budgets, signers: s.signers, note: s.scribe.note, log: s.log},
			s.scribe.lore.Policy)
		if err != nil {
			return nil, err
		}
	}
	homes := gateway.Homes()
	masks := gateway.Masks(home, homes)
	if s.cages, err = openJail(masks, func(err error) { s.log.Warn("the jail", "err", err) }); err != nil {
		return nil, err
	}
	none, err := jail.NewNone(jail.Config{Mask: masks})
	if err != nil {
		return nil, err
	}
	if err := s.openHooks(home, masks); err != nil {
		return nil, err
	}
	s.pins = gateway.NewPins(wrap.NewWorks(s.cages, home.Caches(), s.jailed), s.scribe.lore.Pins, s.scribe.note)
	// without a cage files cannot be protected
	s.open = s.pins.Beside(wrap.NewWorks(none, home.Caches(), func(bailey.SessionID) bool { return false }))
	if s.redaction == nil {
		s.redaction = gateway.NewRedaction()
	}
	s.redaction.Tell = s.meter.Redacted
	s.kept = gateway.NewKept(s.redaction)
	s.sessions = gateway.NewSessions(s.scribe.lore.Sessions, s.scribe.note)
	salt, err := openSalt(home)
	if err != nil {
		return nil, err
	}
	s.sender = notify.New(notify.Config{Settings: s.notices, Key: func() (notify.Key, error) { return readNotifyKey(home) }, Log: s.log})
	s.queue = approve.New(approve.Config{Note: s.scribe.note, Prove: s.approver, Tell: s.sender.Tell, Key: salt, Past: s.scribe.lore.Asked, Log: s.log})
	s.kill.Withdraw = func(reason string) { s.queue.Withdraw(reason, func(bailey.Question) bool { return true }) }
	workspaces := gateway.NewWorkspaces(masks, homes)
	s.shelf = newShelf(s.catalog, gateway.OpenProfiles(home, workspaces, s.scribe.lore.Profiles, s.scribe.note, s.log), s.cages.Installed)
	s.gate, err = gate.New(gate.Config{
		Ledger: s.watched(), Catalog: s.shelf, Places: workspaces, Policy: s.before(s.rules), Hooks: s.hooks,
		Approver: lasting{s.queue, s.sessions}, Budgets: s.budgets, Lender: lender{s.broker}, Egress: ways{settings: s.network}, Redactor: s.redaction,
		Runners: map[pack.Isolation]bailey.Runner{pack.Jail: s.pins, pack.Open: s.open, pack.Agent: gate.Own{}},
		Host:    host, Log: s.log, Observe: observe,
	})
	s.kill.Gate = s.gate
	return workspaces, err
}

// openJail returns the source of cages, for the gateway and for commands such as `jail run` in their own process.
func openJail(masks []string, warn func(error)) (*jail.Jail, error) {
	return jail.New(jail.Config{Mask: masks, Warn: warn})
}

// signers returns the trusted keys of the settings.
func (s *stack) signers() []string {
	if s.desk == nil {
		return nil
	}
	return s.desk.settings.Applied().Signers
}

// actions describes every capability to the policy.
func actions(c *pack.Catalog) []policy.Action {
	var list []policy.Action
	for _, m := range c.All() {
		list = append(list, policy.Action{
			ID: m.ID, Pack: m.Pack, SideEffect: string(m.SideEffect), Risk: string(m.Risk),
			Reversibility: string(m.Reversibility), InputSchema: m.InputSchema(), BuiltIn: m.Builtin, Waivers: m.Waivers(), Home: m.Home(), Own: m.Isolation == pack.Agent,
		})
	}
	return list
}

// manifests returns a digest over all capabilities: SHA-256, in hex, of the sorted lines with the id and the manifest
// digest of each capability.
func (s *stack) manifests() string {
	var lines []string
	for _, m := range s.shelf.Catalog().All() {
		lines = append(lines, string(m.ID)+" "+m.Digest+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

func (s *stack) packs() []string {
	seen := map[string]bool{}
	var list []string
	for _, m := range s.shelf.Catalog().All() {
		if name := m.Pack + " " + m.Version; !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}

// serve runs until ctx ends or the gateway stops by itself. Then it closes all parts in order.
func (s *stack) serve(ctx context.Context) error {
	defer s.close()
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
	g.Go(func() error { return s.queue.Run(questions) })
	g.Go(func() error { return s.sender.Run(ctx) })
	g.Go(func() error { return s.index.Run(ctx) })
	g.Go(func() error { return s.scribe.run(ctx) })
	return g.Wait()
}

func (s *stack) close() {
	if s.cages != nil {
		if err := s.cages.Close(); err != nil {
			s.log.Error("closing the jail", "err", err)
		}
	}
	if s.limit != nil {
		s.limit.Close()
	}
	if s.index != nil {
		if err := s.index.Close(); err != nil {
			s.log.Error("closing the index of receipts", "err", err)
		}
	}
	if s.ledger != nil {
		if err := s.ledger.Close(); err != nil {
			s.log.Error("closing the ledger", "err", err)
		}
	}
	if s.traces != nil {
		if err := s.traces.Close(); err != nil {
			s.log.Warn("closing the spans", "err", err)
		}
	}
	if s.unlock != nil {
		s.unlock()
	}
}

// mcp serves MCP on one connection.
func (s *stack) mcp(ctx context.Context, from bailey.Call, conn io.ReadWriteCloser) error {
	return mcp.Serve(ctx, s.door(from, true), conn)
}

// jailed reports whether the session belongs to an agent in the agent jail.
func (s *stack) jailed(id bailey.SessionID) bool {
	_, jailed := s.sessions.Wall(id)
	return jailed
}

func (s *stack) door(from bailey.Call, stdio bool) mcp.Config {
	return mcp.Config{
		Gate: doorOfMCP{s, stdio}, Principal: from.Principal, Session: from.Session, Dir: from.Dir, Version: version, Log: s.log,
		Listed: s.desk.settings.Applied().Agents.Listed,
		Hide:   func(text string) string { return s.redaction.Text(from.Session.ID, text) },
	}
}

// before returns p behind two checks that deny whatever the policy decides: the kill switch, and the scope of the
// token.
func (s *stack) before(p gate.Policy) gate.Policy { return s.kill.Before(s.agents.Before(p)) }

// web returns the interface for MCP over HTTP.
func (s *stack) web() (gateway.Web, error) {
	door, err := mcp.NewHTTP(mcp.HTTPConfig{
		Admit: func(bearer string) (mcp.Caller, error) {
			t, err := s.agents.Admit(bearer)
			return mcp.Caller{Principal: bailey.Principal{Agent: t.Agent, Token: t.ID}}, err
		},
		Enter: func(ctx context.Context, c mcp.Caller) (mcp.Config, func(), error) {
			from, leave, err := s.gateway.Enter(ctx, c.Principal, c.Dir)
			return s.door(from, false), leave, err
		},
		Hide: func(text string) string { // used before a session exists
			id := bailey.NewSessionID()
			defer s.redaction.End(id)
			return s.redaction.Text(id, text)
		},
		Log: s.log,
	})
	return webDoor{door}, err
}

// webDoor decodes the description that the listener sent with the connection.
type webDoor struct{ *mcp.HTTP }

func (w webDoor) Serve(l net.Listener) error {
	return w.HTTP.Serve(l, func(c net.Conn) (f mcp.Front) {
		if c, ok := c.(*gateway.WebConn); ok {
			json.Unmarshal(c.Front, &f) // if it cannot be decoded, nothing is allowed
			f.Dir = c.Dir
		}
		return f
	})
}

// doorOfMCP gives the MCP interface access to the stack.
type doorOfMCP struct {
	s     *stack
	stdio bool // the client is connected through bailey serve, not HTTP
}

func (d doorOfMCP) Do(ctx context.Context, call bailey.Call) bailey.Result {
	return d.s.limit.Do(ctx, call)
}

// Tools omits tools that would be denied for every input, because an agent tries each tool that it sees.
func (d doorOfMCP) Tools(_ context.Context, p bailey.Principal) []mcp.Tool {
	rules := d.s.rules.Engine()
	var tools []mcp.Tool
	for _, m := range d.s.shelf.Present() {
		// agents have their own tools for the capabilities of [pack.Agent]
		if m.Isolation == pack.Agent || rules.Never(m.ID, p.Agent) || d.s.agents.Allows(p, m.ID) != nil || d.s.wanting(m) {
			continue
		}
		tools = append(tools, mcp.Tool{
			ID: m.ID, Description: described(m), InputSchema: m.InputSchema(), OutputSchema: m.OutputShape(),
			// clients run such tools without asking
			ReadOnly:    (m.SideEffect == pack.None || m.SideEffect == pack.ReadOnly) && !m.Uncaged(),
			Destructive: m.SideEffect == pack.Destructive,
		})
	}
	return tools
}

func (d doorOfMCP) Search(_ context.Context, words string) (ids []bailey.CapabilityID) {
	for _, m := range d.s.shelf.Catalog().Search(words, 0) {
		ids = append(ids, m.Capability.ID)
	}
	return ids
}

// Receipts reads the ledger, because an earlier gateway may have written some.
func (d doorOfMCP) Receipts(ctx context.Context, of bailey.SessionID, most int) (list []mcp.Receipt, err error) {
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
func (d doorOfMCP) Receipt(ctx context.Context, of bailey.SessionID, id bailey.ReceiptID) (json.RawMessage, error) {
	if !possible(id) {
		return nil, noReceipt(id)
	}
	page, err := d.s.index.Find(ctx, receipts.Filter{ID: id, Session: of, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Records) == 0 || page.Records[0].Intent.Session != of {
		return nil, noReceipt(id)
	}
	return json.Marshal(page.Records[0])
}

// described returns the description of a capability for agents. If it runs without a cage, the description always says
// so.
func described(m *pack.Capability) string {
	if !m.Uncaged() {
		return m.Description
	}
	return strings.TrimSpace(m.Description + "\n\nIt runs without a cage, with all that its user may do.")
}

// wanting reports whether a call needs a broker or a daemon that is not available.
func (s *stack) wanting(m *pack.Capability) bool {
	if len(m.Wants()) > 0 && (s.desk == nil || s.desk.settings.Applied().Broker == nil) {
		return true
	}
	api := m.API()
	if api == nil {
		return false
	}
	_, err := os.Stat(daemonPath(*api, s.network()))
	return err != nil
}

// looks returns the queries by verb.
func (s *stack) looks() map[string]func(context.Context, wire.Query, bailey.Call) (any, error) {
	return map[string]func(context.Context, wire.Query, bailey.Call) (any, error){
		"capabilities": func(context.Context, wire.Query, bailey.Call) (any, error) {
			list, here := capabilityList{Capabilities: []capability{}}, s.shelf.looking()
			for _, m := range s.shelf.Active() {
				c := newCapability(m, false)
				c.Absent = !here(m)
				list.Capabilities = append(list.Capabilities, c)
			}
			return list, nil
		},
		"capability": func(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
			m, err := s.shelf.Catalog().Lookup(bailey.CapabilityID(text(q.Args, "id")))
			if err != nil {
				return nil, err
			}
			return newCapability(bind(s.shelf.profiles.InForce(), m), true), nil
		},
		"receipts": s.receipts,
		"receipt":  s.receipt,
		"records":  s.records,
		"explain":  s.explain, "reconsider": s.reconsider,
		"cage":     s.cage,
		"settings": s.desk.state, "configuration": s.desk.configuration,
		"search":     s.search,
		toolsLook:    s.exportTools,
		judgeLook:    s.judge,
		keptLook:     s.keptSession,
		"changes":    s.changes,
		"status":     s.status,
		"checkpoint": s.checkpoint, "request": s.request, "cosign": s.cosign, "key": s.key, "prove": s.prove,
		"metrics": s.metrics, wrapsLook: s.wraps, profilesLook: s.listProfiles, profileCompare: s.compareProfiles,
		killVerb: s.stop, killedLook: s.killed, "budget": s.budget, nowLook: s.present,
		"approvals": s.approvals, denyVerb: s.deny, "grants": s.grants, draftVerb: s.draft, sessionVerb: s.session,
		packsLook: s.packed.list, packLook: s.packed.show, packKeysLook: s.packed.keys, packCompareLook: s.packed.look,
		"policy.compare": s.rules.compare, "policy.show": s.rules.show, "hooks.compare": s.hooks.book.compare, hooksLook: s.listHooks,
		agentsLook: s.listAgents, tokensLook: s.listTokens,
	}
}

func (s *stack) explain(ctx context.Context, q wire.Query, call bailey.Call) (any, error) {
	if q.Call == nil {
		return nil, errors.New("an explain query without a call")
	}
	call.Capability, call.Input, call.Text = q.Call.Capability, q.Call.Input, q.Call.Text
	r, err := s.gate.Request(ctx, call)
	if err != nil {
		return nil, err
	}
	x := s.rules.Engine().Explain(r)
	// the kill switch is set, or no policy could be loaded
	if d := s.before(s.rules).Decide(r); d.Effect.String() != x.Outcome {
		x = policy.Explanation{Capability: x.Capability, Outcome: d.Effect.String(), Reason: d.Reason, Hint: d.Hint, Rules: []policy.Cited{}, Policy: x.Policy}
	}
	return x, nil
}

func text(args map[string]any, key string) string { v, _ := args[key].(string); return v }

func number(args map[string]any, key string) int {
	n, ok := args[key].(json.Number)
	if !ok {
		return 0
	}
	i, err := strconv.Atoi(n.String())
	if err != nil {
		return 0
	}
	return i
}
