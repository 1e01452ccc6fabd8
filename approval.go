package bailey

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Level states how strongly an answer proves the identity of its author.
type Level string

// Levels of an answer. [Level.Meets] reports whether a level satisfies a requirement.
const (
	Local          Level = "local"           // unsigned: from operator commands or the client of the agent
	SignedSoftware Level = "signed-software" // signed with a key in a file or a key agent
	SignedTouch    Level = "signed-touch"    // signed with an sk key that confirms that a person was present
)

// levels in increasing order. A rule with "" requires only an answer.
var levels = []Level{"", Local, SignedSoftware, SignedTouch}

// Meets reports whether an answer of level l satisfies the required level want. It returns false if either of them is
// not a known level.
func (l Level) Meets(want Level) bool {
	return slices.Contains(levels, want) && l != "" && slices.Index(levels, l) >= slices.Index(levels, want)
}

// Stricter returns the stricter of two required levels. An unknown level is the strictest.
func (l Level) Stricter(o Level) Level {
	i, j := slices.Index(levels, l), slices.Index(levels, o)
	if i < 0 || j >= 0 && i >= j {
		return l
	}
	return o
}

// Question is the question to a person: the complete call and the rules that ask. Text contains all of it in canonical
// form (package approvaltext), and an answer binds exactly this text. Fields without a JSON name are part of the text.
type Question struct {
	ID        ApprovalID   `json:"id"`
	Receipt   ReceiptID    `json:"receipt"`
	Principal Principal    `json:"-"`
	Session   SessionID    `json:"-"` // "" if the call has no session to come back to
	Call      CapabilityID `json:"capability"`
	Manifest  string       `json:"-"` // digest of the manifest
	Impact    string       `json:"-"` // side-effect class, reversibility, and whether the call runs without a cage
	Inputs    []Input      `json:"-"` // sorted by name
	Resource  Target       `json:"-"`
	Argv      []Shown      `json:"-"` // rendered once
	Dir       Shown        `json:"-"`
	// Bound are the directories of a git repository that the cage shows, if they are more than Dir.
	Bound []BoundDir `json:"-"`
	// [NoContents], [Bound] or [NotBound], for all files and directories
	Contents     string       `json:"-"`
	Files        []FrozenFile `json:"-"` // sorted by input
	Preview      Preview      `json:"-"`
	Binary       Shown        `json:"-"`
	BinaryDigest string       `json:"-"`
	Cage         string       `json:"-"` // kind of the cage
	Plan         Shown        `json:"-"` // digest of the cage plan
	EnvNames     []string     `json:"-"`
	Leases       []LeaseScope `json:"-"` // credentials to lend
	Egress       []string     `json:"-"` // destinations that the tool could reach, in the form of [Endpoint.Words]
	Rules        []Rule       `json:"-"`
	Nonce        string       `json:"-"` // the approver must set this field and the following ones
	AskedAt      time.Time    `json:"askedAt"`
	Expires      time.Time    `json:"expires"` // time limit for an answer
	Until        time.Time    `json:"-"`       // time limit for the run of a granted call
	Text         string       `json:"text"`
	Digest       string       `json:"digest"` // SHA-256 of Text, hex
	// Subject is the same for all questions about the same call in the same session. Alike is the same for the
	// questions of all sessions that would run the same command, whatever its spelling.
	Subject string `json:"subject"`
	Alike   string `json:"alike"`

	// Patience is the time that the caller waits for an answer; 0 means that it does not wait. Asked is optional. If
	// set, it is called when the question is open, in its own goroutine, with a context that ends when the caller stops
	// waiting.
	Patience time.Duration                         `json:"-"`
	Asked    func(ctx context.Context, q Question) `json:"-"`
	// Heard is the verdict of the hooks before the question. It is used when the call is repeated.
	Heard Heard `json:"-"`
}

// BoundDir is a directory that the cage shows.
type BoundDir struct {
	Path  Shown
	Write bool
}

// Mode returns "read" or "write".
func (b BoundDir) Mode() string {
	if b.Write {
		return "write"
	}
	return "read"
}

// Heard is the verdict of the hooks on a pending call. When the call is repeated, the hooks are not asked again. The
// verdict exists only in memory and is deleted with the question. The zero value means that no hook was asked.
type Heard struct {
	Of      string    // SHA-256, in hex, of the judged call with its caller and session
	Receipt ReceiptID // the call for which the hooks were asked
	Effect  Effect
	Rule    Rule
	Input   []byte // JSON, as the hooks returned it, with redacted values; nil: unchanged
}

// Values of [Question.Contents].
const (
	NoContents = "none"      // the call names no files or directories
	Bound      = "bound"     // all contents are snapshots, or the preview shows everything that matters
	NotBound   = "not bound" // contents may change between the answer and the run
)

// FrozenFile is a file input that was copied when the question was asked. The tool gets the copy.
type FrozenFile struct {
	Input  string
	Size   int64  // bytes
	SHA256 Secret // hex; secret because a guessed content could be confirmed with it
}

// Preview is the output of a tool that shows the effect of a call. The zero value means that the call has no preview.
type Preview struct {
	Argv   []Shown
	Output Shown // complete; only the text for display is shortened
}

// LeaseScope describes a credential that would be lent.
type LeaseScope struct {
	Name     string        `json:"name"`    // name of the credential
	Env      string        `json:"env"`     // the variable that contains it, or the path of its file
	Adapter  string        `json:"adapter"` // source of the credential
	Scope    string        `json:"scope"`   // permitted use, as described by the adapter
	TTL      time.Duration `json:"ttl"`     // validity of the credential
	Approval bool          `json:"-"`       // the broker requires an answer before it lends
	// Inject is the destination of the credential if the tool must not get it; nil: the tool gets it.
	Inject *InjectWant `json:"inject,omitempty"`
}

// Shown is a value and its redacted text for display. An answer binds both.
type Shown struct {
	Text  string
	Value Secret
}

// Input is an input of a call, as JSON.
type Input struct {
	Name string
	Shown
}

// String returns the redacted text.
func (s Shown) String() string { return s.Text }

// Answer is the answer to a question. The zero value grants nothing.
type Answer struct {
	Question   ApprovalID // the answered question, which may be from an earlier call
	Granted    []RuleID   // rules that were granted
	Standing   []GrantID  // standing grants that were used
	Pending    bool       // the question is still open: the caller gets its ID and does not wait
	Expires    time.Time  // for a pending question
	Reason     string     // reason for a refusal
	Text       string     // the text that was answered
	Signatures []string   // armoured SSHSIG signatures of Text, which the broker verifies itself
}

// Grant is a standing grant. During its lifetime, calls of the capability by the principal need no individual answer
// for these rules, as long as the rules have the same meaning. An answer binds the canonical text of the grant (package
// approvaltext).
type Grant struct {
	ID         GrantID
	Capability CapabilityID
	Principal  Principal // only agent, person and organisation
	Session    SessionID // the only session in which it is valid; "" for all
	Rules      []Rule
	Nonce      string
	Given      time.Time
	Until      time.Time
}

// ApprovalTTL is the lifetime of an open question, and of a grant for a pending call, unless the rules set a shorter
// one.
const ApprovalTTL = 10 * time.Minute

// Wanted is the combined requirement of all asking rules. It takes the strictest value of each field, so an answer
// satisfies every rule.
type Wanted struct {
	Roles []string      // roles that an approver must hold, all of them, sorted; empty if any approver may answer
	Count int           // number of people
	Level Level         // minimum level; "" if no rule sets one
	TTL   time.Duration // lifetime of the answer; 0 if no rule sets one
}

// Combine returns the combined requirement of several asking rules.
func Combine(asks []Rule) Wanted {
	w := Wanted{Count: 1}
	for _, r := range asks {
		if r.Role != "" && !slices.Contains(w.Roles, r.Role) {
			w.Roles = append(w.Roles, r.Role)
		}
		w.Count = max(w.Count, r.Count)
		w.Level = w.Level.Stricter(r.Level)
		if r.TTL > 0 && (w.TTL == 0 || r.TTL < w.TTL) {
			w.TTL = r.TTL
		}
	}
	slices.Sort(w.Roles)
	return w
}

// Want is a credential that a capability needs, and the variable for it.
type Want struct {
	Name string
	Env  string
	File bool // the value is in a memory-backed file, and the variable contains the path of the file
	// Inject is set if the value is inserted at the edge of the cage. The variable then contains a placeholder. If
	// Inject is nil, the tool gets the value.
	Inject *InjectWant
	// Limits are what the call needs of the credential, as KIND=VALUE in sorted order with a space between them, for
	// example "access=read repository=octo/web". A broker may lend less for them, never more.
	Limits string
}

// InjectWant describes where a placeholder is replaced with its secret.
type InjectWant struct {
	To      []string `json:"to"` // endpoints of the capability, as host:port
	Headers []string `json:"headers,omitempty"`
	Query   []string `json:"query,omitempty"`
	// Basic is the user name if the secret is a password for basic authentication (RFC 7617) and the tool needs the
	// complete header. It affects only the variable and not the destination of the secret, so questions and the broker
	// do not contain it. The digest of the manifest binds it.
	Basic string `json:"-"`
	// Paths limits the requests that get the secret to those at or below host:port/path. Nil means no limit. The inputs
	// and the manifest, which questions contain, determine it.
	Paths []string `json:"-"`
	// Sign is [SignAWS] if requests are signed outside the cage with the secret. The digest of the manifest binds it.
	Sign string `json:"-"`
	// Tokens is [TokensNpm] if the secret is a file of that form and the tool gets it with placeholders for its tokens.
	// The digest of the manifest binds it.
	Tokens string `json:"-"`
}

// Shown returns the value of the tool's variable. If Basic is set, this is the complete header.
func (w *InjectWant) Shown(placeholder string) string {
	if w.Basic == "" {
		return placeholder
	}
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(w.Basic+":"+placeholder))
}

// NewPlaceholder returns a unique word that replaces a secret in the cage.
func NewPlaceholder() string { return "bailey-placeholder-" + strings.ToLower(rand.Text()) }

// Loan is a request to lend credentials to a call. Text and Signatures come from the answer that allowed the call. They
// are empty if no person was asked.
type Loan struct {
	Receipt    ReceiptID
	Capability CapabilityID
	Wants      []Want
	Text       string
	Signatures []string
}

// Lease contains the credentials that were lent for one call. Only Env, Files and Secrets contain secret values. The
// IDs are written to the receipt.
type Lease struct {
	IDs     []string
	Env     []string   // NAME=value
	Files   []LentFile // files for the variables in [LentFile.Env]
	Secrets []Secret   // all secret values, for redaction
	Return  func()     // must be called to end the lease; never nil
}

// Lent is the part of a lease that a run gets. It always prints as ***.
type Lent struct {
	Env   []string   // NAME=value
	Files []LentFile // files for the variables in [LentFile.Env]
	Way   Way        // outer side of the [Network] of the job; nil if it has no network
}

func (Lent) Format(f fmt.State, _ rune) { io.WriteString(f, "***") }

// LentFile is a secret value that a tool reads from a file.
type LentFile struct {
	Env   string // variable with the path of the file
	Value Secret
}

// String returns the IDs of the lease without the secrets. All other ways to print a lease do the same.
func (l Lease) String() string { return "lease " + strings.Join(l.IDs, " ") }

func (l Lease) Format(f fmt.State, _ rune)   { io.WriteString(f, l.String()) }
func (l Lease) MarshalJSON() ([]byte, error) { return json.Marshal(l.IDs) }
func (l Lease) LogValue() slog.Value         { return slog.StringValue(l.String()) }

// Secret is a value that prints as ***. Only Reveal returns its text.
type Secret struct{ text string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text. The caller is responsible for where the text goes.
func (s Secret) Reveal() string { return s.text }

func (Secret) String() string               { return "***" }
func (Secret) GoString() string             { return "***" }
func (Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, "***") }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// LogValue hides the text from log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }
