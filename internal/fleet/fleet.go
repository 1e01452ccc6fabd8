// Package fleet is the connection between a control plane and its hosts: gateways and daemons of sandboxes. A host
// dials out and keeps one bidirectional stream of frames open.
//
// # Upwards
//
// A host registers, sends a heartbeat, events, its receipts, and the results of commands. Events are kept in a file of
// the host ([Queue]) until the server has acknowledged them; the server stores each exactly once. Receipts are not
// copied into that file: the host's ledger is the queue, and the server says how much of it it holds.
//
// # Downwards
//
// The server sends commands. The host records the id of a command durably before it runs it ([Commands]), so that it
// never runs twice, and keeps the result until the server has acknowledged it. A command that the host has recorded and
// that has no result after a restart is answered with an error: its outcome is unknown.
//
// # Wire
//
// A frame is a protobuf message; fleet.proto describes it. The code here encodes it itself, because generated code
// registers each message in an init function, and every program that links it pays for that at its start. TestProto
// compares both. Package fleet/link carries frames over gRPC.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"bailey"
)

// Limits of the protocol.
const (
	MaxFrame    = 4 << 20 // bytes of a frame
	MaxBody     = 3 << 20 // bytes of the body of an event, a command or a result
	MaxKind     = 64      // bytes of the kind of an event or a command
	MaxHandlers = 64      // commands that a host runs at once
	MaxDeadline = 24 * time.Hour
	IDLength    = 26

	HeartbeatEvery = 15 * time.Second
)

// Kinds of events (up) and commands (down).
const (
	ApprovalAsked   = "approval.asked"   // up
	ApprovalDecided = "approval.decided" // up
	ApprovalAnswer  = "approval.answer"  // down
	BundleOffer     = "bundle.offer"     // down
	BundleState     = "bundle.state"     // up
	PolicyState     = "policy.state"     // up
	Kill            = "kill"             // down
	Unkill          = "unkill"           // down
	Budget          = "budget"           // down
	Spend           = "spend"            // up
	Call            = "call"             // down
	CallBegun       = "call.begun"       // up
	HostResources   = "host.resources"   // up
)

// Kinds of hosts.
const (
	Gateway     = "gateway"
	SandboxHost = "sandbox-host"
)

// A Frame is one message of the stream. Exactly one field is set. The first frame of a host is Register, and the server
// answers it with Welcome.
type Frame struct {
	// up
	Register  *Register
	Heartbeat *Heartbeat // both ways
	Event     *Event
	Receipts  *Receipts
	Result    *Result
	// down
	Welcome  *Welcome
	Ack      *Ack
	Command  *Command
	Taken    *Taken
	Cosigned *Cosigned
}

// Register says what a host is. It is JSON on the wire.
type Register struct {
	Kind     string   `json:"kind"` // Gateway or SandboxHost
	Version  string   `json:"version"`
	Commit   string   `json:"commit,omitempty"`
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Capacity Capacity `json:"capacity,omitzero"` // of a host of sandboxes
	Images   []string `json:"images,omitempty"`
	Networks []string `json:"networks,omitempty"`
	// Queue names the host's queue. A new one begins at 1, for example after the host has lost its state.
	Queue string `json:"queue"`
	// Floor is the last event of the queue that is gone, because it was acknowledged.
	Floor  uint64  `json:"floor,omitempty"`
	Ledger *Ledger `json:"ledger,omitempty"` // nil without receipts
}

// Capacity is what a host of sandboxes has in all.
type Capacity struct {
	CPUs      int   `json:"cpus,omitempty"`
	Memory    int64 `json:"memory,omitempty"` // bytes
	Disk      int64 `json:"disk,omitempty"`   // bytes
	Sandboxes int   `json:"sandboxes,omitempty"`
}

// Ledger names a host's ledger.
type Ledger struct {
	Origin    string `json:"origin"`     // the name in its checkpoints
	PublicKey string `json:"public_key"` // of its checkpoints, as bailey audit key prints it
}

// Heartbeat says that the sender lives.
type Heartbeat struct{ Time time.Time }

// Event is something that a host reports. Seq is its number in the host's queue, from 1.
type Event struct {
	Seq  uint64
	Kind string
	Body []byte // JSON
}

// Receipts are the lines of a ledger after its first From entries. The last frame of a batch has the signed checkpoint
// over everything up to its last line.
type Receipts struct {
	From       uint64
	Lines      []byte // whole lines, with their newlines
	Checkpoint []byte
}

// Result answers a command: Body, or Error.
type Result struct {
	ID    string
	Body  []byte
	Error *Fault
}

// Fault is an error on the wire. Unknown means that the command was begun, and that its outcome is not known.
type Fault struct {
	Kind, Message, Hint string
	Unknown             bool `json:",omitempty"`
}

// Welcome admits a host.
type Welcome struct {
	Host     string // its id
	Name     string
	Acked    uint64 // the last event of its queue that the server has
	Receipts uint64 // how many entries of its ledger the server holds
	Forked   bool   // the server refuses its receipts, because its ledger is not the one it knows
}

// Ack says that the server has stored the events up to Seq.
type Ack struct{ Seq uint64 }

// Command is work for a host. After Deadline it is not begun.
type Command struct {
	ID       string
	Kind     string
	Body     []byte // JSON
	Deadline time.Time
}

// Taken says that the server has stored the result of a command.
type Taken struct{ ID string }

// Cosigned answers receipts. Size is how many entries the server holds. Line is its cosignature, after a checkpoint.
type Cosigned struct {
	Size   uint64
	Line   []byte
	Forked bool
}

// A Handler carries out commands of one kind. Its ctx ends at the command's deadline, and when the host stops.
type Handler func(ctx context.Context, body []byte) ([]byte, error)

// Handlers are the handlers of a host by kind of command.
type Handlers map[string]Handler

// A Stream carries frames between a host and the server. One goroutine may receive while another one sends.
type Stream interface {
	Send(*Frame) error
	Recv() (*Frame, error)
}

// NewID returns the id of a command or of a queue.
func NewID() string {
	var b [16]byte
	rand.Read(b[:])
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:]))
}

// isID reports whether text has the form of an id.
func isID(text string) bool {
	return len(text) == IDLength && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// NewFault returns an error as it goes over the wire: without its cause, which stays in the log of this side.
func NewFault(err error) *Fault {
	f := &Fault{Kind: string(bailey.KindOf(err)), Message: "the handler failed", Hint: bailey.HintOf(err)}
	if e, ok := errors.AsType[*bailey.Error](err); ok {
		f.Message = e.Message
	}
	return f
}

// Err returns the error that a fault stands for.
func (f *Fault) Err() error {
	if f == nil {
		return nil
	}
	return bailey.Kind(f.Kind).New(f.Message, f.Hint)
}

// checkContent validates the kind and the body of an event or a command.
func checkContent(kind string, body []byte) error {
	switch {
	case kind == "" || len(kind) > MaxKind || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz.-") != "":
		return invalidFrame("%.80q is not a kind", kind)
	case len(body) > MaxBody:
		return invalidFrame("the body has %d bytes, at most %d are allowed", len(body), MaxBody)
	case len(body) > 0 && (!json.Valid(body) || !utf8.Valid(body)):
		return invalidFrame("the body of %.80q is not JSON", kind)
	}
	return nil
}

func invalidFrame(format string, args ...any) error {
	return bailey.Invalid.Errorf("both sides must be of versions that understand each other", format, args...)
}
