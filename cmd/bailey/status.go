package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/ledger"
	"bailey/internal/redact"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// status is the output of `bailey status`. If no gateway is running, only Running, Home, Hint, Agents and Shims are
// set.
type status struct {
	Running  bool                  `json:"running"`
	Home     string                `json:"home"`
	Hint     string                `json:"hint,omitempty"`
	Gateway  *gatewayStatus        `json:"gateway,omitempty"`
	Calls    []gateway.LiveCall    `json:"calls"`
	Sessions []gateway.LiveSession `json:"sessions"`
	Ledger   *ledgerStatus         `json:"ledger,omitempty"`
	Policy   string                `json:"policy,omitempty"` // digest of the rules
	Applied  *appliedPolicy        `json:"policyApplied,omitempty"`
	Fault    string                `json:"policyFault,omitempty"`   // why nothing is allowed
	Drift    string                `json:"policyDrift,omitempty"`   // how the files differ from the applied policy
	Settings string                `json:"settingsDrift,omitempty"` // how the settings differ from the applied ones
	Hooks    *hooksStatus          `json:"hooks,omitempty"`         // nil if there are none and none are pending
	Profile  *profileStatus        `json:"profile,omitempty"`       // nil if none is in use
	Killed   *gateway.Killed       `json:"killed,omitempty"`        // set if all calls are stopped
	Packs    []string              `json:"packs,omitempty"`
	// packs and trusted keys that differ from the ledger
	Packed    []packFinding `json:"packFindings,omitempty"`
	Redaction redact.Config `json:"redaction,omitzero"` // custom rules of the home
	Kept      *keptStatus   `json:"kept,omitempty"`
	Asked     *askedStatus  `json:"asked,omitempty"`
	Notify    *notifyStatus `json:"notify,omitempty"`
	Cage      *cageStatus   `json:"cage,omitempty"`
	Broker    *brokerStatus `json:"broker,omitempty"` // nil if none is configured
	Agents    []agentStatus `json:"agents,omitempty"`
	Shims     []shimEntry   `json:"shims,omitempty"`
	Workspace string        `json:"workspace,omitempty"` // why the client's directory cannot be a workspace
}

type gatewayStatus struct {
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Protocol int       `json:"protocol"`
	Since    time.Time `json:"since"`
}

type ledgerStatus struct {
	Dir      string `json:"dir"`
	OK       bool   `json:"ok"`       // no error in the part that was verified for this answer
	Verified uint64 `json:"verified"` // entries of the last segment; audit verify reads all
	Segments int    `json:"segments"`
	Entries  uint64 `json:"entries"`
	Open     int    `json:"open"`
	Head     string `json:"head"`
	Durable  bool   `json:"durable"`
	Frail    string `json:"frail,omitempty"` // why it is not durable
}

// keptStatus counts the redaction sessions, which end with the gateway. It does not show their ids, which only their
// owners may know.
type keptStatus struct {
	Sessions int       `json:"sessions"`
	Until    time.Time `json:"until"` // expiry of the last one
}

// cageStatus is the cage that a call would get now. It is determined by building cages.
type cageStatus struct {
	Kind     string   `json:"cage"` // "" if none can be built, so that no call runs
	Layers   []string `json:"layers"`
	Problems []string `json:"problems,omitempty"`
}

const (
	noGateway = "no gateway is running; the next call starts one"
	walled    = "none can be reached from inside of a wall, but for calls"
)

// stopped returns the status if no gateway is running.
func stopped(home wire.Home, hint string) status {
	return status{Home: string(home), Hint: hint, Calls: []gateway.LiveCall{}, Sessions: []gateway.LiveSession{}, Agents: newAgentStatus(nil)}
}

func (a *app) statusVerb() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "What is running, what it stands on, and what is not confined", Args: cobra.NoArgs,
		Long: `Show the gateway with its live calls and sessions, the ledger, the cage that calls get, and what holds the
agents: confined, hooked, or able to walk around the gate. That is found out by trying. It is a look: it starts no
gateway, and leaves nothing behind but what a hook's answers are recorded as.`,
		PreRun: a.warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := wire.FindHome()
			if err != nil {
				return err
			}
			here, err := os.Getwd()
			if err != nil {
				return err
			}
			s, err := stopped(home, walled), error(nil)
			if wire.Inside() == "" {
				s, err = askStatus(cmd.Context(), home, statusPatience)
			}
			if err != nil && !errors.Is(err, wire.ErrUnreachable) {
				return err
			}
			if err != nil {
				s = stopped(home, walled)
			}
			s.Shims, _ = shims(home) // the doctor reports why they cannot be read
			s.Agents = tryAgents(cmd.Context(), s.Agents, here, s.Running, false)
			if err != nil && s.Agents[0].State != confinedState {
				return err
			}
			if a.json {
				return a.print(s)
			}
			return s.words(a.stdout)
		},
	}
}

// statusPatience limits how long the gateway may take to answer. It first verifies a segment of the ledger and builds
// cages.
const statusPatience = 30 * time.Second

// askStatus queries the running gateway. If no gateway is running, it returns the status from stopped.
func askStatus(ctx context.Context, home wire.Home, patience time.Duration) (status, error) {
	var s status
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := (&wire.Client{Home: home}).Look(bounded, wire.Query{Verb: "status"}, &s)
	switch {
	case errors.Is(err, wire.ErrUnreachable) && nobodyListens(err):
		return stopped(home, noGateway), nil
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return s, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("the gateway of %s does not answer within %v", home, patience),
			Hint: "see " + home.LogFile() + "; bailey gateway stop ends a gateway that still listens", Err: err}
	}
	return s, err
}

// status is a query, answered inside the gateway.
func (s *stack) status(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	at, err := s.ledger.Stand()
	if err != nil {
		return nil, err
	}
	frail, err := ledger.Durability(s.home.Ledger())
	if err != nil {
		return nil, err
	}
	out := status{
		Running: true, Home: string(s.home), Policy: s.rules.Engine().Digest(), Packs: s.packs(),
		Gateway: &gatewayStatus{PID: os.Getpid(), Version: version, Protocol: wire.Protocol, Since: s.since.UTC()},
		Ledger: &ledgerStatus{Dir: s.home.Ledger(), OK: at.Bad == nil, Verified: at.Verified, Segments: at.Segments, Entries: at.Entries,
			Open: at.Open, Head: at.Head.String(), Durable: frail == "", Frail: frail},
		Cage: newCageStatus(s.cages.Diagnose(ctx)),
	}
	if s.bare {
		out.Cage = bareCage()
	}
	out.Broker = askBroker(ctx, s.desk.settings.Applied().Broker)
	if out.Broker != nil {
		out.Broker.Key = s.keyring(s.home).where()
	}
	out.Redaction = s.desk.settings.Applied().Redaction
	s.rules.status(&out)
	out.Hooks = s.hooks.book.status()
	_, out.Packed = installedPacks(s.home, s.packed.now())
	out.Profile = newProfileStatus(s.shelf.profiles)
	out.Notify = s.notifyState()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	if n, until := s.kept.Count(); n > 0 {
		out.Kept = &keptStatus{n, until}
	}
	out.Asked = newAskedStatus(s.queue)
	if st, err := s.desk.settings.State(""); err != nil || st.Changed {
		out.Settings = gateway.SettingsName + " is not what was applied, and the next gateway will not use it"
	}
	out.Calls, out.Sessions = s.live.Now()
	out.Agents = newAgentStatus(out.Sessions)
	if err := s.workspaces.Fit(q.Dir); err != nil {
		out.Workspace = withHint(err)
	}
	return out, nil
}

// newCageStatus returns the kind "full" if every layer of an ordinary call works, and "landlock" if every layer of the
// reduced cage works. A missing proc-private layer is ignored, because only some manifests need a /proc. So is a
// missing cgroup layer, because the watcher replaces it.
func newCageStatus(layers []jail.Layer) *cageStatus {
	c := &cageStatus{Kind: "full", Layers: []string{}}
	for _, l := range layers {
		if l.Err == nil {
			c.Layers = append(c.Layers, l.Name)
			continue
		}
		c.Problems = append(c.Problems, withHint(l.Err))
		switch {
		case l.Name == "full" && c.Kind != "": // the layer full comes first
			c.Kind = "landlock"
		case l.Name != "proc-private" && l.Name != "cgroup":
			c.Kind = ""
		}
	}
	return c
}

func withHint(err error) string {
	if hint := bailey.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

func (s status) words(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	if wire.Inside() == "" {
		line("home", "%s", s.Home)
	}
	if s.Running {
		s.runningWords(line)
	} else {
		line("gateway", "%s", s.Hint)
	}
	for _, agent := range s.Agents {
		line("agent", "%s: %s", cell(agent.Agent), terminal.Shown(agent.Words))
		if agent.Cure != "" {
			line("", "→ %s", terminal.Shown(agent.Cure))
		}
	}
	for _, one := range s.Shims {
		if one.State != "ok" {
			line("shim", "%s is %s: %s", cell(one.Name), one.State, terminal.Shown(one.Why))
			line("", "→ %s", terminal.Shown(one.Cure))
		}
	}
	if s.Workspace != "" {
		line("here", "%s", terminal.Shown(s.Workspace))
	}
	return w.Flush()
}

func (s status) runningWords(line func(name, format string, args ...any)) {
	g := s.Gateway
	line("gateway", "pid %d, version %s, up %s", g.PID, g.Version, time.Since(g.Since).Round(time.Second))
	line("ledger", "%s", s.Ledger.words())
	if s.Killed != nil {
		line("STOPPED", "%s", killedWords(*s.Killed))
	}
	line("policy", "%s", s.policyWords())
	if s.Drift != "" {
		line("DRIFT", "%s; bailey policy apply shows the difference and applies it", terminal.Shown(s.Drift))
	}
	if s.Settings != "" {
		line("DRIFT", "%s; bailey init --apply shows the difference and applies it", s.Settings)
	}
	if s.Hooks != nil {
		line("hooks", "%s", s.Hooks.words())
		switch {
		case s.Hooks.Fault != "":
			line("HOOKS", "NOTHING IS ALLOWED: %s", terminal.Shown(s.Hooks.Fault))
		case s.Hooks.Drift != "":
			line("DRIFT", "%s; bailey hooks reload shows the difference and applies it", terminal.Shown(s.Hooks.Drift))
		}
	}
	line("packs", "%s", strings.Join(s.Packs, ", "))
	for _, f := range s.Packed {
		line("PACKS", "%s; %s", terminal.Shown(f.Text), terminal.Shown(f.Cure))
	}
	if s.Profile != nil {
		s.Profile.words(line)
	}
	if words := ruleCounts(s.Redaction); words != "" {
		line("redaction", "%s", words)
	}
	if s.Kept != nil {
		line("kept", "%s", s.Kept.words())
	}
	if s.Asked != nil {
		line("ASKED", "%s", s.Asked.words())
	}
	if s.Notify != nil && (len(s.Notify.Ways) > 0 || s.Notify.Asks > 0) {
		line("notify", "%s", terminal.Shown(s.Notify.words()))
	}
	line("cage", "%s", s.Cage.words())
	if s.Broker != nil {
		line("broker", "%s", terminal.Shown(s.Broker.words()))
	}
	for _, c := range s.Calls {
		line("call", "%s %s by %s over %s, session %s, for %s", c.Receipt, cell(string(c.Capability)), cell(c.Agent), c.Door, c.Session, time.Since(c.Since).Round(time.Second))
	}
	for _, c := range s.Sessions {
		client := "not named yet"
		if c.Client != "" {
			client = "(" + cell(c.Client) + ")" // as the client names itself
		}
		line("session", "%s over %s, agent %s, client %s, in %s, for %s", c.ID, c.Door, cell(c.Agent), client, terminal.Shown(c.Dir), time.Since(c.Since).Round(time.Second))
	}
	line("now", "%d live, %d sessions", len(s.Calls), len(s.Sessions))
}

func (k *keptStatus) words() string {
	text := "1 redaction session is kept"
	if k.Sessions != 1 {
		text = fmt.Sprintf("%d redaction sessions are kept, the last", k.Sessions)
	}
	return text + k.Until.Local().Format(" until 2006-01-02 15:04") + ", or until the gateway ends"
}

func (l *ledgerStatus) words() string {
	text := fmt.Sprintf("%d entries in %d segment, head %.16s…", l.Entries, l.Segments, l.Head)
	if l.Segments != 1 {
		text = strings.Replace(text, "segment", "segments", 1)
	}
	if l.Durable {
		text += ", durable"
	} else {
		text += "; not durable: " + l.Frail
	}
	switch {
	case !l.OK:
		text += "; DAMAGED: bailey audit verify says where"
	case l.Verified < l.Entries:
		text += fmt.Sprintf("; verified now: the last %d entries and the links between segments; bailey audit verify reads all", l.Verified)
	}
	return text
}

func (c *cageStatus) words() string {
	text := c.Kind + ": " + strings.Join(c.Layers, " ")
	switch c.Kind {
	case "":
		text = "none, so no call runs"
	case "none":
		text = "none"
	}
	return strings.Join(append([]string{text}, c.Problems...), "; ")
}
