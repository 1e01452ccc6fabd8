package gateway

import (
	"encoding/json"
	"errors"
	"time"

	"bailey"
)

// Protocol is the version of what client and gateway say to each other; another one is refused.
const Protocol = 3

// stopVerb ends the gateway. It is understood in every version of the protocol.
const stopVerb = "stop"

// Frame kinds. A client sends one query; the gateway answers output frames, then one result or error. To a call that
// waits for a person it sends a notice, which says of what.
// After a query for "mcp" and an empty result frame the connection carries MCP, unframed, and after one for "http" HTTP/1.1. After one for "redact" and
// an empty result frame the client sends input and then end, while output comes; a result or error is the last word.
const (
	frameQuery  byte = 'q'
	frameStdout byte = 'o'
	frameStderr byte = 'e'
	frameResult byte = 'r'
	frameError  byte = 'x'
	frameInput  byte = 'i'
	frameEnd    byte = 'z'
	frameNotice byte = 'n'
)

// Query is what a client asks for.
type Query struct {
	Protocol int            `json:"protocol"`
	Verb     string         `json:"verb"`              // call, mcp, http, redact, stop, or one of the gateway's looks
	Dir      string         `json:"dir"`               // the client's working directory
	Session  string         `json:"session,omitempty"` // the bearer of the session that a call or an MCP connection belongs to
	Token    string         `json:"token,omitempty"`   // the bearer of the agent that asks
	Call     *CallQuery     `json:"call,omitempty"`
	Args     map[string]any `json:"args,omitempty"` // of a look or an act
	Redact   *RedactQuery   `json:"redact,omitempty"`
	Operator Operator       `json:"operator,omitempty"`
	// Front is what the listener says of itself that a connection of HTTP came by.
	Front json.RawMessage `json:"front,omitempty"`
}

// CallQuery is a call as a client words it.
type CallQuery struct {
	Capability bailey.CapabilityID `json:"capability"`
	Input      map[string]any      `json:"input,omitempty"`
	Text       bool                `json:"text,omitempty"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Wait       bool                `json:"wait,omitempty"`
	Stream     bool                `json:"stream,omitempty"` // send output as it comes
	Shim       bool                `json:"shim,omitempty"`   // it was called by the tool's own name: all output, however much
}

// Notice says which question a call waits for.
type Notice struct {
	Approval bailey.ApprovalID `json:"approvalId"`
	Digest   string            `json:"digest"`
	Expires  time.Time         `json:"expires"`
}

// Reply is a call's result as every door's JSON shows it.
type Reply struct {
	OK               bool              `json:"ok"`
	ReceiptID        bailey.ReceiptID  `json:"receiptId"`
	Outcome          bailey.Status     `json:"outcome"`
	Decision         string            `json:"decision,omitempty"` // absent when it never came to one
	Rules            []bailey.Rule     `json:"rules,omitempty"`
	Result           *Output           `json:"result"` // null when nothing was executed
	ApprovalRequired bool              `json:"approvalRequired"`
	ApprovalID       bailey.ApprovalID `json:"approvalId,omitempty"`
	Error            bailey.Kind       `json:"error,omitempty"`
	Reason           string            `json:"reason,omitempty"`
	Hint             string            `json:"hint,omitempty"`
	DryRun           bool              `json:"dryRun,omitempty"`
	Executed         bool              `json:"executed"`
	Argv             []string          `json:"argv,omitempty"`
	Refused          []string          `json:"refused,omitempty"` // what its egress was refused, a line each
	Cage             *bailey.Cage      `json:"cage"`
}

// Output is what the tool left: text with what is not UTF-8 replaced.
type Output struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exitCode"`
	Truncated bool   `json:"truncated"`
	Narrow    string `json:"narrow,omitempty"` // of one that was cut: how to have less at once
	// Structured is stdout once more, where the manifest promises JSON and it is what was promised.
	Structured json.RawMessage `json:"structured,omitempty"`
}

// NewReply puts a result into its JSON shape.
func NewReply(r bailey.Result) Reply {
	p := Reply{
		OK: r.Err == nil && r.Status == bailey.OK, ReceiptID: r.Receipt, Outcome: r.Status,
		Rules:            r.Decision.Rules,
		ApprovalRequired: r.Status == bailey.Pending, ApprovalID: r.Approval,
		DryRun: r.DryRun, Executed: r.Executed, Argv: r.Argv, Refused: r.Refused, Cage: r.Cage,
		Reason: r.Decision.Reason, Hint: r.Decision.Hint,
	}
	if r.Executed && !r.NotDurable {
		p.Result = &Output{string(r.Stdout), string(r.Stderr), r.ExitCode, r.Truncated, r.Narrow, r.Structured}
	}
	if r.Decision.Made() || r.Status == bailey.Refused {
		p.Decision = r.Decision.Effect.String()
	}
	if r.Err != nil {
		p.Error, p.Reason, p.Hint = bailey.KindOf(r.Err), r.Err.Error(), bailey.HintOf(r.Err)
	}
	return p
}

// failure is an error as it crosses the socket.
type failure struct {
	Kind    bailey.Kind `json:"kind"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
}

func newFailure(err error) failure {
	return failure{bailey.KindOf(err), err.Error(), bailey.HintOf(err)}
}

// hidden is the failure as the session may read it.
func (f failure) hidden(r *Redaction, id bailey.SessionID) failure {
	return failure{f.Kind, r.Text(id, f.Message), r.Text(id, f.Hint)}
}

func (f failure) err() error {
	return &bailey.Error{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
}

// ErrUnreachable is what a client learns when no gateway answers, or the one that did is gone.
var ErrUnreachable = errors.New("the gateway is not reachable")
