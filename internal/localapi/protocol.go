// Package localapi is the small client side of the gateway: the paths of a home and its socket, the protocol on it, and the
// client, which starts a gateway if none answers. Programs that start often, such as shims, link this package and not
// the gateway.
package localapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"bailey"
	"bailey/internal/terminal"
)

// Protocol is the version of the protocol between client and gateway. Another version is refused.
const Protocol = 5

// Verbs for which a connection carries more than one answer.
const (
	StopVerb   = "stop"   // ends the gateway; every version of the protocol must understand it
	HTTPVerb   = "http"   // turns the connection into HTTP/1.1
	ModelVerb  = "model"  // the same, for requests to models
	RedactVerb = "redact" // streams text through the gateway, which has the detectors and the token maps
)

// Environment variables of a client, for example of an agent.
const (
	SessionVariable = "BAILEY_SESSION" // bearer of the session that the client's calls belong to
	TokenVariable   = "BAILEY_TOKEN"   // token of the agent for which the client acts
)

// CallsSocket is the path of the only socket inside the agent jail. The path alone identifies the jail: a variable
// could be set outside, and some clients start programs without environment variables.
const CallsSocket = "/run/bailey/calls.sock"

// MaxQuery is the maximum size of a query in bytes: a command line's arguments, at most 32 KiB each, or a hook's frame,
// 1 MiB in base64.
const MaxQuery = 3 << 19

// Kinds of frames. A client sends one query. The gateway answers with output frames, then one result or error. If the
// call waits for an approval, the gateway sends a notice that names it. After a query for "mcp" and an empty result
// frame, the connection carries MCP, unframed; for "http" and "model" it carries HTTP/1.1. After a query for "redact" and an empty
// result frame, the client sends input frames and then an end frame, while output arrives. A result or error is the
// last frame.
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

// Query is a client's request.
type Query struct {
	Protocol int             `json:"protocol"`
	Verb     string          `json:"verb"`              // call, mcp, http, model, redact, stop, or a query or command of the gateway
	Dir      string          `json:"dir"`               // working directory of the client
	Session  string          `json:"session,omitempty"` // bearer of the session of a call or an MCP connection
	Token    string          `json:"token,omitempty"`   // bearer of the agent
	Call     *CallQuery      `json:"call,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"` // of an [Endpoint]
	Redact   *RedactQuery    `json:"redact,omitempty"`
	Operator Operator        `json:"operator,omitempty"`
	// Front is the description that an HTTP listener gives of itself.
	Front json.RawMessage `json:"front,omitempty"`
}

// CallQuery is a call as a client sends it.
type CallQuery struct {
	Capability bailey.CapabilityID `json:"capability"`
	Input      map[string]any      `json:"input,omitempty"`
	Text       bool                `json:"text,omitempty"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Wait       bool                `json:"wait,omitempty"`
	Stream     bool                `json:"stream,omitempty"`  // send output as it arrives
	Timeout    time.Duration       `json:"timeout,omitempty"` // nanoseconds, at most that of the manifest; 0 means that
	// Argv has the arguments of a tool called by its own name, instead of a capability and its input. The gateway maps
	// them to a capability, and all output is sent, whatever its size. If the tool reads standard input, the gateway
	// sends an [InputBound] as an input frame, and the client must answer with one input frame.
	Argv []string `json:"argv,omitempty"`
}

// Operator says by which right a client uses an operator verb. It protects against accidents and is not a security
// boundary: the client claims it, and every process with the user's uid could. Ledger events record it.
type Operator string

const (
	Terminal Operator = "terminal" // stdin and stdout are a terminal
	Env      Operator = "env"      // BAILEY_OPERATOR=1 and --yes are set
)

// RedactQuery says how the input that follows is redacted.
type RedactQuery struct {
	Mode    RedactMode       `json:"mode"`
	Session bailey.SessionID `json:"session,omitempty"` // an existing session; empty for a new one
}

// RedactMode says how the input is processed.
type RedactMode string

const (
	Hide    RedactMode = "hide"    // the output has tokens in place of findings
	Lines   RedactMode = "lines"   // the same for lines of JSON
	Report  RedactMode = "report"  // no output, and nothing is kept
	Restore RedactMode = "restore" // the output has the original text in place of tokens; only for operators
)

// InputBound is the maximum size of a tool's standard input, in bytes.
type InputBound struct {
	Most int `json:"most"`
}

// Notice names the approval that a call waits for.
type Notice struct {
	Approval bailey.ApprovalID `json:"approvalId"`
	Digest   string            `json:"digest"`
	Expires  time.Time         `json:"expires"`
}

// Reply is the result of a call as every front end shows it in JSON.
type Reply struct {
	OK               bool              `json:"ok"`
	ReceiptID        bailey.ReceiptID  `json:"receiptId"`
	Outcome          bailey.Status     `json:"outcome"`
	Decision         string            `json:"decision,omitempty"` // absent if no decision was made
	Rules            []bailey.Rule     `json:"rules,omitempty"`
	Result           *Output           `json:"result"` // null if nothing was executed
	ApprovalRequired bool              `json:"approvalRequired"`
	ApprovalID       bailey.ApprovalID `json:"approvalId,omitempty"`
	Error            bailey.Kind       `json:"error,omitempty"`
	Reason           string            `json:"reason,omitempty"`
	Hint             string            `json:"hint,omitempty"`
	DryRun           bool              `json:"dryRun,omitempty"`
	Executed         bool              `json:"executed"`
	Argv             []string          `json:"argv,omitempty"`
	Refused          []string          `json:"refused,omitempty"` // refused network requests, one line each
	Notices          []string          `json:"notices,omitempty"` // messages and warnings of hooks, for the person
	Cage             *bailey.Cage      `json:"cage"`
}

// Output is the tool's output as text. Bytes that are not UTF-8 are replaced.
type Output struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exitCode"`
	Truncated bool   `json:"truncated"`
	Narrow    string `json:"narrow,omitempty"` // if truncated: how to request less output
	// Structured is stdout as JSON, if the manifest promises JSON and the output matches.
	Structured json.RawMessage `json:"structured,omitempty"`
}

// NewReply converts a result to its JSON form.
func NewReply(r bailey.Result) Reply {
	p := Reply{
		OK: r.Err == nil && r.Status == bailey.OK, ReceiptID: r.Receipt, Outcome: r.Status,
		Rules:            r.Decision.Rules,
		ApprovalRequired: r.Status == bailey.Pending, ApprovalID: r.Approval,
		DryRun: r.DryRun, Executed: r.Executed, Argv: r.Argv, Refused: r.Refused, Notices: r.Notices, Cage: r.Cage,
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

// Failure is the form of an error on the socket.
type Failure struct {
	Kind    bailey.Kind `json:"kind"`
	Message string      `json:"message"`
	Hint    string      `json:"hint,omitempty"`
}

// NewFailure returns the part of err that is sent.
func NewFailure(err error) Failure {
	return Failure{bailey.KindOf(err), err.Error(), bailey.HintOf(err)}
}

// Err returns the error that f represents.
func (f Failure) Err() error {
	return f.Kind.New(f.Message, f.Hint)
}

// ErrUnreachable is a client's error if no gateway answers or the connection to it is lost.
var ErrUnreachable = errors.New("the gateway is not reachable")

// TellWalls writes which isolation a call lacked and which network requests were refused.
func (r Reply) TellWalls(w io.Writer) {
	if r.Executed && r.Cage != nil {
		if r.Cage.Lesser != "" {
			fmt.Fprintf(w, "bailey: it ran in the jail %s, not in the full one: %s\n", r.Cage.Kind,
				terminal.Shown(r.Cage.Lesser))
		}
		if r.Cage.Kind == bailey.Uncaged {
			fmt.Fprintln(w, "bailey: it ran without a jail: only policy restricted it")
		}
	}
	for _, text := range r.Notices {
		fmt.Fprintf(w, "bailey: %s\n", terminal.Shown(text))
	}
	for _, line := range r.Refused {
		fmt.Fprintf(w, "bailey: connection refused: %s\n", terminal.Shown(line))
	}
}

// Word returns a short reason why a call has no result.
func (r Reply) Word() string {
	if r.ApprovalRequired {
		return "approval needed"
	}
	return string(r.Error)
}

// Tell writes that a call waits for an approval, and how to approve it.
func (n Notice) Tell(w io.Writer) {
	id := terminal.Shown(string(n.Approval))
	fmt.Fprintf(w, "%sbailey: waits for approval %s: bailey approve %s (digest %.12s…) until %s\n", terminal.Bell(), id,
		id, terminal.Shown(n.Digest), n.Expires.Local().Format(time.TimeOnly))
}

// ShimDoor is the name in receipts of the front end for calls by a tool's own name.
const ShimDoor = "shim"
