// Package wire is the thin side of the gateway: where a home and its socket are, what is said there, and the client that says it and
// starts a gateway when none answers. What starts often links this, and not the gateway.
package wire

import (
	"bailey/internal/terminal"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"bailey"
)

// Protocol is the version of what client and gateway say to each other; another one is refused.
const Protocol = 4

// Verbs of which a connection becomes more than one answer.
const (
	StopVerb   = "stop"   // ends the gateway; understood in every version of the protocol
	HTTPVerb   = "http"   // makes a connection one of HTTP/1.1
	RedactVerb = "redact" // streams text through the gateway, which has the detectors and the map of what they found
)

// Variables of a client's environment.
const (
	SessionVariable = "BAILEY_SESSION" // holds the bearer of the session that its calls belong to
	TokenVariable   = "BAILEY_TOKEN"   // holds the token of the agent that it acts for
)

// CallsSocket is where an agent inside the wall finds the one socket it has. The place is all that says so: a variable could be
// set outside, and some clients give the programs that they start none.
const CallsSocket = "/run/bailey/calls.sock"

// MaxQuery bounds a query, in bytes: a command line's words, 32 KiB each at most, or a hook's frame, a mebibyte in base64.
const MaxQuery = 3 << 19

// Kinds of frames. A client sends one query; the gateway answers output frames, then one result or error. To a call that
// waits for a person it sends a notice, which says of what.
// After a query for "mcp" and an empty result frame the connection carries MCP, unframed, and after one for "http" HTTP/1.1. After one for "redact" and
// an empty result frame the client sends input and then end, while output comes; a result or error is the last word.
const (
	FrameQuery  byte = 'q'
	FrameStdout byte = 'o'
	FrameStderr byte = 'e'
	FrameResult byte = 'r'
	FrameError  byte = 'x'
	FrameInput  byte = 'i'
	FrameEnd    byte = 'z'
	FrameNotice byte = 'n'
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
	// Argv is a tool's own words, in place of a capability and its input: what they mean the gateway finds, and all output comes,
	// however much. Where the tool reads stdin it sends an [InputBound] as an input frame, and the client one of what there is.
	Argv []string `json:"argv,omitempty"`
}

// Operator says by what right an operator verb comes. It guards against accident and is no wall: the
// client says it of itself, and every process of the user's uid could. Ledger events carry it.
type Operator string

const (
	Terminal Operator = "terminal" // stdin and stdout are a terminal
	Env      Operator = "env"      // BAILEY_OPERATOR=1 together with --yes
)

// RedactQuery is what a client wants of the input it is about to send.
type RedactQuery struct {
	Mode    RedactMode       `json:"mode"`
	Session bailey.SessionID `json:"session,omitempty"` // a kept one; empty for a new one
}

// RedactMode is what becomes of the input.
type RedactMode string

const (
	Hide    RedactMode = "hide"    // comes out with tokens
	Lines   RedactMode = "lines"   // the same for lines of JSON
	Report  RedactMode = "report"  // nothing comes out, and nothing is kept
	Restore RedactMode = "restore" // comes out with tokens given back; for operators
)

// InputBound is how much of a tool's stdin the gateway takes, in bytes.
type InputBound struct {
	Most int `json:"most"`
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

// Failure is an error as it crosses the socket.
type Failure struct {
	Kind    bailey.Kind `json:"kind"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
}

// NewFailure is what of an error crosses.
func NewFailure(err error) Failure {
	return Failure{bailey.KindOf(err), err.Error(), bailey.HintOf(err)}
}

// Err is the error again.
func (f Failure) Err() error {
	return &bailey.Error{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
}

// ErrUnreachable is what a client learns when no gateway answers, or the one that did is gone.
var ErrUnreachable = errors.New("the gateway is not reachable")

// TellWalls says what of the walls was missing where a call ran, and what they refused on the way out.
func (r Reply) TellWalls(w io.Writer) {
	if r.Executed && r.Cage != nil {
		if r.Cage.Lesser != "" {
			fmt.Fprintf(w, "bailey: it ran in the cage %s, not in the full one: %s\n", r.Cage.Kind, terminal.Shown(r.Cage.Lesser))
		}
		if r.Cage.Kind == bailey.Uncaged {
			fmt.Fprintln(w, "bailey: it ran without a cage: nothing but policy held it")
		}
	}
	for _, line := range r.Refused {
		fmt.Fprintf(w, "bailey: refused on the way out: %s\n", terminal.Shown(line))
	}
}

// Word says in a word why a call has no result.
func (r Reply) Word() string {
	if r.ApprovalRequired {
		return "approval needed"
	}
	return string(r.Error)
}
