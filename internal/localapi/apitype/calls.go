package apitype

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// Version is set by releases (-ldflags "-X bailey/internal/localapi/apitype.Version=…").
var Version = "dev"

// Exit codes (README.md).
const (
	ExitOK          = 0
	ExitDenied      = 1
	ExitInput       = 2  // bad input, or an approval is needed
	ExitTool        = 3  // the tool failed; its own code is in the result
	exitBlocked     = 77 // denied by the active profiles
	exitNoMatch     = 126
	ExitUnreachable = 127
)

// ParseInputs parses key=value pairs. It returns an error if a key is given twice.
func ParseInputs(pairs []string) (map[string]any, error) {
	input := map[string]any{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, bailey.Invalid.Errorf("write -i key=value", "%q is not key=value", pair)
		}
		if _, twice := input[key]; twice {
			return nil, bailey.Invalid.Errorf("give each input once; write a list as one JSON array",
				"input %s is given twice", key)
		}
		input[key] = value
	}
	return input, nil
}

// ReplyCode is the only mapping from the result of a call to an exit code.
func ReplyCode(r localapi.Reply) int {
	switch {
	case r.OK:
		return ExitOK
	case r.ApprovalRequired:
		return ExitInput
	}
	switch r.Error {
	case bailey.Invalid:
		return ExitInput
	case bailey.ToolFailed:
		return ExitTool
	case bailey.NotFound:
		return exitNoMatch
	case bailey.Blocked:
		return exitBlocked
	}
	return ExitDenied
}

// RuleNames returns the id and source of each rule, separated by commas, or "no rule" if there are none.
func RuleNames(rules []bailey.Rule) string {
	if len(rules) == 0 {
		return "no rule"
	}
	var names []string
	for _, r := range rules {
		names = append(names, fmt.Sprintf("%s (%s)", r.ID, r.Source))
	}
	return strings.Join(names, ", ")
}

// OwnSession is a session with its bearer token, as JSON.
type OwnSession struct {
	OK      bool             `json:"ok"`
	Session bailey.SessionID `json:"session"` // as in receipts
	Bearer  string           `json:"bearer"`  // a secret: with it, any process can call in this session
}

const (
	ShimInstallEvent   = "shim.install"
	ShimUninstallEvent = "shim.uninstall"
)

// ShimTools names the tools whose shims are installed or removed.
type ShimTools struct {
	Tools []string `json:"tools"`
}

// ShimEntry is one shim and its state.
type ShimEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Tool  string `json:"tool,omitempty"` // path of the tool in PATH without shims
	State string `json:"state"`          // ok, inactive, shadowed, stale
	Why   string `json:"why,omitempty"`
	Cure  string `json:"cure,omitempty"`
}

// ToolCall is a call of an agent's own tool, which its hook asks about.
type ToolCall struct {
	Tool  string         `json:"tool"`
	Dir   string         `json:"dir"`
	Input map[string]any `json:"input,omitempty"` // as the agent gave it
	Shim  string         `json:"shim,omitempty"`  // path of bailey-shim for the agent's shell

	Session string `json:"session,omitempty"` // as the agent names it
}

// AgentSession names a session of an agent, as the agent names it.
type AgentSession struct {
	Session string `json:"session"`
}

// KillRequest sets the kill switch.
type KillRequest struct {
	Reason string `json:"reason,omitempty"`
}

// MaxKillReason limits a reason, in bytes. It becomes part of every refusal and its receipt.
const MaxKillReason = 400

// KilledText returns one line for a kill switch that is on: since when, by which person, the reason, and the command
// that ends it.
func KilledText(k Killed) string {
	words := "everything is stopped since " + k.At.Format(time.RFC3339)
	if k.Person != "" {
		words += " by " + terminal.TableCell(k.Person)
	}
	if k.Reason != "" {
		words += ": " + terminal.TableCell(k.Reason)
	}
	return words + "; run bailey resume to allow calls again"
}

// Killed describes that the kill switch is on. The zero Killed means that calls are carried.
type Killed struct {
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Person string    `json:"person,omitempty"`
	Calls  int       `json:"calls"` // running calls that were ended
}

// On reports whether the switch is on.
func (k Killed) On() bool { return !k.At.IsZero() }

// Orders are what the control plane has stopped on this gateway.
type Orders struct {
	Revision uint64  `json:"revision,omitempty"` // grows with each change of the orders
	Kills    []Order `json:"kills,omitempty"`
	// Host is the id of this gateway at the control plane. Another control plane begins its own revisions.
	Host string `json:"host,omitempty"`
}

// Order stops an agent, or every call.
type Order struct {
	ID     string    `json:"id"`
	Agent  string    `json:"agent,omitempty"` // "": every call
	Reason string    `json:"reason,omitempty"`
	Person string    `json:"person,omitempty"`
	At     time.Time `json:"at"`
}

// All returns the order that stops every call, or nil.
func (o Orders) All() *Order { return o.For("") }

// For returns the order that stops an agent, or nil. An order that stops every call stops each agent.
func (o Orders) For(agent string) *Order {
	for i, k := range o.Kills {
		if k.Agent == "" || k.Agent == agent {
			return &o.Kills[i]
		}
	}
	return nil
}

// Spendings is the usage of all budgets.
type Spendings struct {
	Budgets []Spending `json:"budgets"`
}

// Account identifies a meter. A field is empty if the budget does not distinguish by it.
type Account struct {
	Budget     string              `json:"budget"`
	Session    bailey.SessionID    `json:"session,omitempty"`
	Agent      string              `json:"agent,omitempty"`
	Person     string              `json:"person,omitempty"`
	Capability bailey.CapabilityID `json:"capability,omitempty"`
}

// Spending is the use of a budget.
type Spending struct {
	Account
	Since  time.Time     `json:"since"`
	Until  *time.Time    `json:"until,omitempty"` // when counting restarts
	Calls  int           `json:"calls"`
	Open   int           `json:"open"` // calls that run now
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	Output int64         `json:"output"`
	// Tokens of models, see [bailey.ModelUse.Tokens].
	InputTokens  int64         `json:"inputTokens,omitempty"`
	OutputTokens int64         `json:"outputTokens,omitempty"`
	MicroUSD     int64         `json:"microUsd,omitempty"` // see [bailey.ModelUse]
	Spent        string        `json:"spent,omitempty"`    // the limit that is reached
	Limit        bailey.Budget `json:"limit"`
}

// DigestOf returns the SHA-256 of text, in hex.
func DigestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
