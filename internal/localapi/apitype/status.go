// Package apitype has the requests and the answers of the gateway, their names, and their form for people. Package
// localapi carries them.
package apitype

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/packstore"
	"bailey/internal/redact"
	"bailey/internal/terminal"
)

// Status is the output of `bailey status`. If no gateway is running, only Running, Home, Hint, Agents and Shims are
// set.
type Status struct {
	Running  bool           `json:"running"`
	Home     string         `json:"home"`
	Hint     string         `json:"hint,omitempty"`
	Gateway  *GatewayStatus `json:"gateway,omitempty"`
	Calls    []LiveCall     `json:"calls"`
	Sessions []LiveSession  `json:"sessions"`
	Ledger   *LedgerStatus  `json:"ledger,omitempty"`
	Policy   string         `json:"policy,omitempty"` // digest of the rules
	Applied  *AppliedPolicy `json:"policyApplied,omitempty"`
	Fault    string         `json:"policyFault,omitempty"`   // why nothing is allowed
	Drift    string         `json:"policyDrift,omitempty"`   // how the files differ from the applied policy
	Settings string         `json:"settingsDrift,omitempty"` // how the settings differ from the applied ones
	Hooks    *HooksStatus   `json:"hooks,omitempty"`         // nil if there are none and none are pending
	Profile  *ProfileStatus `json:"profile,omitempty"`       // nil if none is in use
	Killed   *Killed        `json:"killed,omitempty"`        // set if all calls are stopped
	Packs    []string       `json:"packs,omitempty"`
	// packs and trusted keys that differ from the ledger
	Packed    []packstore.Finding `json:"packFindings,omitempty"`
	Redaction redact.Config       `json:"redaction,omitzero"` // custom rules of the home
	Kept      *KeptStatus         `json:"kept,omitempty"`
	Asked     *AskedStatus        `json:"asked,omitempty"`
	Notify    *NotifyStatus       `json:"notify,omitempty"`
	Cage      *CageStatus         `json:"cage,omitempty"`
	Broker    *BrokerStatus       `json:"broker,omitempty"` // nil if none is configured
	// ControlPlanePages means that passkeys may answer on pages of the control plane itself.
	ControlPlanePages bool          `json:"controlPlanePages,omitempty"`
	Agents            []AgentStatus `json:"agents,omitempty"`
	Shims             []ShimEntry   `json:"shims,omitempty"`
	Workspace         string        `json:"workspace,omitempty"` // why the client's directory cannot be a workspace
}

// PagesAccepted describes the setting controlPlanePages.
const PagesAccepted = "passkeys may answer on pages of the control plane, which decides what they show"

// GatewayStatus describes the running gateway: its process, its version, its protocol and its start time.
type GatewayStatus struct {
	PID      int       `json:"pid"`
	Version  string    `json:"version"`
	Protocol int       `json:"protocol"`
	Since    time.Time `json:"since"`
}

// LedgerStatus is the state of the ledger.
type LedgerStatus struct {
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

// KeptStatus counts the redaction sessions, which end with the gateway. It does not show their ids, which only their
// owners may know.
type KeptStatus struct {
	Sessions int       `json:"sessions"`
	Until    time.Time `json:"until"` // expiry of the last one
}

// CageStatus is the cage that a call would get now. It is determined by building cages.
type CageStatus struct {
	Kind     string   `json:"cage"` // "" if none can be built, so that no call runs
	Layers   []string `json:"layers"`
	Problems []string `json:"problems,omitempty"`
}

// WithHint returns the text of err, followed by its hint if it has one. The error must not be nil.
func WithHint(err error) string {
	if hint := bailey.HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}

// WriteSummary writes the status to out as a table for people, and returns the error of out.
func (s Status) WriteSummary(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	if localapi.Inside() == "" {
		line("home", "%s", s.Home)
	}
	if s.Running {
		s.runningSummary(line)
	} else {
		line("gateway", "%s", s.Hint)
	}
	for _, agent := range s.Agents {
		line("agent", "%s: %s", terminal.TableCell(agent.Agent), terminal.Shown(agent.Words))
		if agent.Cure != "" {
			line("", "→ %s", terminal.Shown(agent.Cure))
		}
		for _, warning := range agent.Warnings {
			line("WARNING", "%s", terminal.Shown(warning))
		}
	}
	for _, one := range s.Shims {
		if one.State != "ok" {
			line("shim", "%s is %s: %s", terminal.TableCell(one.Name), one.State, terminal.Shown(one.Why))
			line("", "→ %s", terminal.Shown(one.Cure))
		}
	}
	if s.Workspace != "" {
		line("here", "%s", terminal.Shown(s.Workspace))
	}
	return w.Flush()
}

func (s Status) runningSummary(line func(name, format string, args ...any)) {
	g := s.Gateway
	line("gateway", "pid %d, version %s, up %s", g.PID, g.Version, time.Since(g.Since).Round(time.Second))
	line("ledger", "%s", s.Ledger.summaryText())
	if s.Killed != nil {
		line("STOPPED", "%s", KilledText(*s.Killed))
	}
	line("policy", "%s", s.policyText())
	if s.Drift != "" {
		line("DRIFT", "%s; run bailey policy apply to see the difference and apply it", terminal.Shown(s.Drift))
	}
	if s.Settings != "" {
		line("DRIFT", "%s; run bailey init --apply to see the difference and apply it", s.Settings)
	}
	if s.Hooks != nil {
		line("hooks", "%s", s.Hooks.summaryText())
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
		s.Profile.printSummary(line)
	}
	if words := RuleCounts(s.Redaction); words != "" {
		line("redaction", "%s", words)
	}
	if s.Kept != nil {
		line("kept", "%s", s.Kept.summaryText())
	}
	if s.Asked != nil {
		line("ASKED", "%s", s.Asked.summaryText())
	}
	if s.Notify != nil && (len(s.Notify.Ways) > 0 || s.Notify.Asks > 0) {
		line("notify", "%s", terminal.Shown(s.Notify.Summary()))
	}
	line("cage", "%s", s.Cage.Summary())
	if s.Broker != nil {
		line("broker", "%s", terminal.Shown(s.Broker.Summary()))
	}
	if s.ControlPlanePages {
		line("approvals", "%s", PagesAccepted)
	}
	for _, c := range s.Calls {
		line("call", "%s %s by %s over %s, session %s, for %s", c.Receipt, terminal.TableCell(string(c.Capability)),
			terminal.TableCell(c.Agent), c.Door, c.Session, time.Since(c.Since).Round(time.Second))
	}
	for _, c := range s.Sessions {
		client := "not named yet"
		if c.Client != "" {
			client = "(" + terminal.TableCell(c.Client) + ")" // as the client names itself
		}
		line("session", "%s over %s, agent %s, client %s, in %s, for %s", c.ID, c.Door, terminal.TableCell(c.Agent),
			client, terminal.Shown(c.Dir), time.Since(c.Since).Round(time.Second))
	}
	line("now", "%d live, %d sessions", len(s.Calls), len(s.Sessions))
}

func (k *KeptStatus) summaryText() string {
	text := "1 redaction session is kept"
	if k.Sessions != 1 {
		text = fmt.Sprintf("%d redaction sessions are kept, the last", k.Sessions)
	}
	return text + k.Until.Local().Format(" until 2006-01-02 15:04") + ", or until the gateway stops"
}

func (l *LedgerStatus) summaryText() string {
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
		text += "; DAMAGED: run bailey audit verify for the place"
	case l.Verified < l.Entries:
		text += fmt.Sprintf("; verified now: the last %d entries and the links between segments; run bailey audit verify to read all", l.Verified)
	}
	return text
}

// Summary returns the kind and layers of the cage and its problems, on one line.
func (c *CageStatus) Summary() string {
	text := c.Kind + ": " + strings.Join(c.Layers, " ")
	switch c.Kind {
	case "":
		text = "none, so no call can run"
	case "none":
		text = "none"
	}
	return strings.Join(append([]string{text}, c.Problems...), "; ")
}

// AskedStatus counts the pending questions, and the approvals and standing grants that people gave.
type AskedStatus struct {
	Open    int       `json:"open"`
	Oldest  time.Time `json:"oldest,omitzero"` // when the oldest pending question was asked
	Granted int       `json:"granted"`         // not used yet
	Grants  int       `json:"grants"`          // standing grants
}

func (s *AskedStatus) summaryText() string {
	var words []string
	if s.Open > 0 {
		words = append(words, fmt.Sprintf("%s for a person, the oldest since %s: bailey approvals list",
			map[bool]string{true: "1 question waits",
				false: fmt.Sprintf("%d questions wait", s.Open)}[s.Open == 1], s.Oldest.Local().Format(time.TimeOnly)))
	}
	if s.Granted > 0 {
		words = append(words, fmt.Sprintf("%d approved and not used", s.Granted))
	}
	if s.Grants > 0 {
		words = append(words, Counts(s.Grants, "grant")+" active: bailey grants list")
	}
	return strings.Join(words, "; ")
}

// LiveCall is a call whose intent is durable and whose outcome is not.
type LiveCall struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Capability bailey.CapabilityID `json:"capability"`
	Agent      string              `json:"agent"`
	Session    bailey.SessionID    `json:"session"`
	Door       string              `json:"door"`
	Since      time.Time           `json:"since"`
}

// LiveSession is a session with a persistent connection. If it has several, the fields describe the last one.
type LiveSession struct {
	ID     bailey.SessionID `json:"id"`
	Door   string           `json:"door"`
	Agent  string           `json:"agent"`
	Dir    string           `json:"dir"`
	Client string           `json:"client,omitempty"` // name that the client gives itself; known after its first call
	Since  time.Time        `json:"since"`
}

// MetricsReply is the answer of the gateway: metrics in the text format of Prometheus.
type MetricsReply struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// Finding is the result of one test of the doctor.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Tried string `json:"tried"`          // the test and its result
	Cure  string `json:"cure,omitempty"` // empty only if the state is ok or info
}

// State is the severity of a finding. Only missing sets the exit code to 1, because calls fail without it.
type State string

const (
	Good    State = "ok"
	Info    State = "info" // a matter of choice, for example a missing tool
	Warning State = "warning"
	Missing State = "missing"
)

// SameUser is the warning for a broker that runs under the same uid as the gateway.
const SameUser = "the broker runs under the gateway's own uid, so there is no privilege separation: any process of this user can take what the broker lends"

// BrokerStatus is the state of the broker, as `bailey status` shows it.
type BrokerStatus struct {
	Socket  string   `json:"socket"`
	UID     int      `json:"uid"`
	Running bool     `json:"running"`
	SameUID bool     `json:"sameUid"`           // broker and gateway are not isolated from each other
	Changed bool     `json:"changed,omitempty"` // its table file differs from the table in use
	Leases  []string `json:"leases,omitempty"`  // the credentials that it lends, one line each
	Wide    []string `json:"wide,omitempty"`    // what they allow beyond the needs of a call, one line each
	// [keyAtBroker] or [keyAtHome], if the settings place the log's key at the broker
	Key   string `json:"checkpointKey,omitempty"`
	Fault string `json:"fault,omitempty"`
	Cure  string `json:"cure,omitempty"`
}

// Summary returns the state of the broker on one line. The caller must escape it for a terminal.
func (b *BrokerStatus) Summary() string {
	text := fmt.Sprintf("uid %d at %s, ", b.UID, b.Socket)
	if !b.Running {
		return text + "UNREACHABLE: " + b.Fault + "; " + b.Cure
	}
	text += fmt.Sprintf("lends %d credentials", len(b.Leases))
	if b.Changed {
		text += "; its broker.yaml differs from what it uses: bailey-broker apply"
	}
	switch b.Key {
	case KeyAtBroker:
		text += "; it signs the ledger's checkpoints"
	case KeyAtHome:
		text += "; " + keyStays
	}
	if b.SameUID {
		text += "; " + SameUser
	}
	return text
}

// ExamineBroker returns the doctor's findings about the broker that the running gateway uses: its state, and each lease
// that allows more than calls need.
func ExamineBroker(s Status) []Finding {
	list := examineBrokerState(s)
	if s.Broker == nil {
		return list
	}
	for _, wide := range s.Broker.Wide {
		list = append(list, Finding{"broker", Warning, "read its leases: " + wide,
			"edit broker.yaml, then run bailey-broker apply as its own user; bailey-broker setup prints what the issuer must allow"})
	}
	return list
}

func examineBrokerState(s Status) []Finding {
	const name, tried = "broker", "asked it for its identity"
	b := s.Broker
	switch {
	case !s.Running:
		return nil
	case b == nil:
		return []Finding{{name, Info, "settings.yaml names no broker, so no credential can be lent", ""}}
	case !b.Running:
		return []Finding{{name, Missing, tried + ": " + b.Fault, b.Cure}}
	case b.Changed:
		return []Finding{{name, Warning, tried + ": its broker.yaml differs from what it uses",
			"run bailey-broker apply, as its own user, to see the difference"}}
	case b.Key == KeyAtHome:
		return []Finding{{name, Warning, "looked for the log's key: " + keyStays,
			"run bailey audit key --rotate to replace it by a key of the broker"}}
	case b.SameUID:
		return []Finding{{name, Warning, tried + ": " + SameUser, "run it as a separate user: docs/broker.md"}}
	}
	return []Finding{{name, Good, tried + ": " + b.Summary(), ""}}
}

// If the platform has no cage (jail.Bare; never on Linux), every start of an interface or a gateway prints a warning.
// status and doctor report it too, and a separate rule must permit calls that run without a cage.

const Disabled = "SANDBOX DISABLED: this platform has no jail; only policy restricts calls"

// BareFinding returns the finding of the doctor. It is only a warning, because calls do run.
func BareFinding() Finding {
	return Finding{"cage", Warning, Disabled,
		"use Linux, or a Linux virtual machine, for tools that read untrusted files"}
}
