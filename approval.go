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

// Level is how well an answer shows whose it is.
type Level string

// The levels of an answer, and whether a higher one will do is [Level.Meets].
const (
	Local          Level = "local"           // unsigned: whoever can use the operator's verbs, or the agent's client
	SignedSoftware Level = "signed-software" // by a key in a file or an agent
	SignedTouch    Level = "signed-touch"    // by a key of an sk type that says a person was present
)

// levels are in their order. "" is what a rule says that wants no more than an answer.
var levels = []Level{"", Local, SignedSoftware, SignedTouch}

// Meets reports whether an answer of this level will do where want is wanted. What is no level meets nothing, and
// nothing meets it.
func (l Level) Meets(want Level) bool {
	return slices.Contains(levels, want) && l != "" && slices.Index(levels, l) >= slices.Index(levels, want)
}

// Stricter returns the stricter of two levels that are wanted; what is no level is the strictest.
func (l Level) Stricter(o Level) Level {
	i, j := slices.Index(levels, l), slices.Index(levels, o)
	if i < 0 || j >= 0 && i >= j {
		return l
	}
	return o
}

// Question is what a person is asked: the complete call and the rules that ask. Text is all of it in canonical form
// (package canon), and an answer binds that and nothing else; what has no name in JSON stands in it.
type Question struct {
	ID           ApprovalID   `json:"id"`
	Receipt      ReceiptID    `json:"receipt"`
	Principal    Principal    `json:"-"`
	Session      SessionID    `json:"-"` // "" of a call that has none to come back in
	Call         CapabilityID `json:"capability"`
	Manifest     string       `json:"-"` // digest
	Impact       string       `json:"-"` // side-effect class and reversibility, and whether it runs without a cage
	Inputs       []Input      `json:"-"` // by name
	Resource     Target       `json:"-"`
	Argv         []Shown      `json:"-"` // rendered once
	Dir          Shown        `json:"-"`
	Contents     string       `json:"-"` // of files and directories among the inputs: [NoContents], [Bound] or [NotBound]
	Files        []FrozenFile `json:"-"` // by input
	Preview      Preview      `json:"-"`
	Binary       Shown        `json:"-"`
	BinaryDigest string       `json:"-"`
	Cage         string       `json:"-"` // its kind
	Plan         Shown        `json:"-"` // digest of the cage's plan
	EnvNames     []string     `json:"-"`
	Leases       []LeaseScope `json:"-"` // what would be lent
	Egress       []string     `json:"-"` // what the tool could reach, as [Endpoint.Words] has it
	Rules        []Rule       `json:"-"`
	Nonce        string       `json:"-"` // these and what follows are the approver's to set
	AskedAt      time.Time    `json:"askedAt"`
	Expires      time.Time    `json:"expires"` // it can be answered until then
	Until        time.Time    `json:"-"`       // what is granted runs by then at the latest
	Text         string       `json:"text"`
	Digest       string       `json:"digest"` // SHA-256 of Text, hex
	// Subject is one for all questions about the same call of the same session, and Alike for those of every session that
	// would run the same, however it was spelt.
	Subject string `json:"subject"`
	Alike   string `json:"alike"`

	// Patience is how long the caller stays for an answer; 0 is not at all. Asked, when set, is told of the question once
	// it is open, in a goroutine of its own, with a context that ends when the caller waits no longer.
	Patience time.Duration                         `json:"-"`
	Asked    func(ctx context.Context, q Question) `json:"-"`
	// Heard is what hooks said before anybody was asked, for when the call comes back.
	Heard Heard `json:"-"`
}

// Heard is what hooks said of a call that waits for a person: when it comes back they are not asked again. It is in memory alone,
// and gone with the question. The zero value is of a call that no hook was asked about.
type Heard struct {
	Of      string    // what they were asked about, by whom and in which session: SHA-256, hex
	Receipt ReceiptID // of the call at which they were
	Effect  Effect
	Rule    Rule
	Input   []byte // JSON, as they left it, redacted as they saw it; nil: unchanged
}

// What a question says of the contents of files and directories that a call names.
const (
	NoContents = "none"      // it names none
	Bound      = "bound"     // they are among the frozen files, or what matters of them is in the preview
	NotBound   = "not bound" // they may change between the answer and the run
)

// FrozenFile is a file input that was copied when it was asked about: the copy is what the tool gets.
type FrozenFile struct {
	Input  string
	Size   int64  // bytes
	SHA256 Secret // hex; whoever could guess the content could find it by its digest
}

// Preview is what a tool showed of what a call would do. Its zero value is of a call without one.
type Preview struct {
	Argv   []Shown
	Output Shown // whole; the text is cut where it is long
}

// LeaseScope is what a credential would be lent for.
type LeaseScope struct {
	Name     string        `json:"name"`    // of the credential
	Env      string        `json:"env"`     // the variable it arrives in, or the name of its file
	Adapter  string        `json:"adapter"` // where it comes from
	Scope    string        `json:"scope"`   // what it is good for, in the adapter's words
	TTL      time.Duration `json:"ttl"`     // it is worth nothing after
	Approval bool          `json:"-"`       // the broker lends it for an answer alone
	// Inject is where it goes in place of the tool; nil: the tool has it.
	Inject *InjectWant `json:"inject,omitempty"`
}

// Shown is a value as it may be read, redacted, with the value itself: an answer binds both.
type Shown struct {
	Text  string
	Value Secret
}

// Input is an input of a call, in JSON.
type Input struct {
	Name string
	Shown
}

// String is what may be read.
func (s Shown) String() string { return s.Text }

// Answer is what became of a question. Its zero value grants nothing.
type Answer struct {
	Question   ApprovalID // that was answered; it may be one that the same call asked before
	Granted    []RuleID   // rules whose grant was given
	Standing   []GrantID  // by which of the standing grants, if by such
	Pending    bool       // still open: nobody waits, the caller gets the id
	Expires    time.Time  // of one that is pending
	Reason     string     // why not, in words
	Text       string     // that was answered, and
	Signatures []string   // by whom, SSHSIG, armoured: a broker verifies them itself
}

// Grant stands for a while: calls of a capability by a principal that these rules ask about, as they read, need no answer
// of their own. Its text (package canon) is what was answered.
type Grant struct {
	ID         GrantID
	Capability CapabilityID
	Principal  Principal // agent, person and organisation
	Rules      []Rule
	Nonce      string
	Given      time.Time
	Until      time.Time
}

// ApprovalTTL is how long a question stays open unless its rules say less, and a grant counts for a call that is parked.
const ApprovalTTL = 10 * time.Minute

// Wanted is what an answer to asking rules has to come to: the strictest of each, so that no rule is satisfied by less
// than it asks.
type Wanted struct {
	Roles []string      // that whoever approves holds all of, in order of name; none for anyone who may approve
	Count int           // of how many people
	Level Level         // at least; "" where no rule says
	TTL   time.Duration // for how long it counts; 0 where no rule says
}

// Combine returns what an answer to several asking rules has to come to.
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

// Want is a credential that a capability needs and the variable it arrives in.
type Want struct {
	Name string
	Env  string
	File bool // it arrives in a memory-backed file, whose path the variable holds
	// Inject is where the value goes at the edge of the cage: then the variable holds a placeholder. Nil: the tool gets the value.
	Inject *InjectWant
}

// InjectWant says where a placeholder is exchanged for its secret.
type InjectWant struct {
	To      []string `json:"to"` // endpoints of the capability, as host:port
	Headers []string `json:"headers,omitempty"`
	Query   []string `json:"query,omitempty"`
	// Basic is the user of whom the secret is the password (RFC 7617), for tools that take a whole header. It is of the variable and
	// of no place that the secret goes to, so neither a question nor the broker has it; the manifest's digest binds it.
	Basic string `json:"-"`
}

// Shown is what the tool has in its variable, the header that it is to send where Basic names a user.
func (w *InjectWant) Shown(placeholder string) string {
	if w.Basic == "" {
		return placeholder
	}
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(w.Basic+":"+placeholder))
}

// NewPlaceholder is what the cage has in place of a secret: a word that stands in nothing else.
func NewPlaceholder() string { return "bailey-placeholder-" + strings.ToLower(rand.Text()) }

// Loan is what a call asks to be lent. Text and Signatures are of the answer that let it through, "" and none of a call
// that nobody was asked about.
type Loan struct {
	Receipt    ReceiptID
	Capability CapabilityID
	Wants      []Want
	Text       string
	Signatures []string
}

// Lease is what was lent for one call. Secret values stand in Env and Files alone; IDs go into the receipt.
type Lease struct {
	IDs     []string
	Env     []string   // NAME=value
	Files   []LentFile // by variable
	Secrets []Secret   // the values by themselves, for redaction
	Return  func()     // ends the lease; never nil
}

// Lent is what a run gets of a lease. It prints as nothing.
type Lent struct {
	Env   []string   // NAME=value
	Files []LentFile // by variable
	Way   Way        // the other side of the job's [Network]; nil where it has none
}

func (Lent) Format(f fmt.State, _ rune) { io.WriteString(f, "***") }

// LentFile is a value that a tool reads from a file.
type LentFile struct {
	Env   string // the variable that holds the file's path
	Value Secret
}

// String names the lease and leaves out what was lent; so do all other ways to print one.
func (l Lease) String() string { return "lease " + strings.Join(l.IDs, " ") }

func (l Lease) Format(f fmt.State, _ rune)   { io.WriteString(f, l.String()) }
func (l Lease) MarshalJSON() ([]byte, error) { return json.Marshal(l.IDs) }
func (l Lease) LogValue() slog.Value         { return slog.StringValue(l.String()) }

// Secret is a value that prints as ***. Reveal is the one way to its text.
type Secret struct{ text string }

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the text. Whoever calls it answers for where it goes.
func (s Secret) Reveal() string { return s.text }

func (Secret) String() string               { return "***" }
func (Secret) GoString() string             { return "***" }
func (Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, "***") }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// LogValue keeps the text out of log/slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }
