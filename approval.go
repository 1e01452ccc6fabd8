package bailey

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Question is what a person is asked: the complete call and the rules that ask. Text is all of it in canonical form
// (package approve), and an answer binds that and nothing else; what has no name in JSON stands in it.
type Question struct {
	ID           ApprovalID   `json:"id"`
	Receipt      ReceiptID    `json:"receipt"`
	Principal    Principal    `json:"-"`
	Session      SessionID    `json:"-"`
	Call         CapabilityID `json:"capability"`
	Manifest     string       `json:"-"` // digest
	Impact       string       `json:"-"` // side-effect class and reversibility
	Inputs       []Input      `json:"-"` // by name
	Resource     Target       `json:"-"`
	Argv         []Shown      `json:"-"` // rendered once
	Dir          Shown        `json:"-"`
	Contents     string       `json:"-"` // of files and directories among the inputs: [NotBound], or [NoContents]
	Binary       Shown        `json:"-"`
	BinaryDigest string       `json:"-"`
	Cage         string       `json:"-"` // its kind
	Plan         Shown        `json:"-"` // digest of the cage's plan
	EnvNames     []string     `json:"-"`
	Rules        []Rule       `json:"-"`
	Nonce        string       `json:"-"` // these and what follows are the approver's to set
	AskedAt      time.Time    `json:"askedAt"`
	Expires      time.Time    `json:"expires"`
	Text         string       `json:"text"`
	Digest       string       `json:"digest"` // SHA-256 of Text, hex
	Wait         bool         `json:"waits"`  // the caller stays for the answer
}

// What a question says of the contents of files and directories that a call names.
const (
	NoContents = "none"      // it names none
	NotBound   = "not bound" // they may change between the answer and the run
)

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
	Granted []RuleID  // rules whose grant was given
	Pending bool      // still open: nobody waits, the caller gets the id
	Expires time.Time // of one that is pending
	Reason  string    // why not, in words
}

// ApprovalTTL is how long a question stays open unless its rules say less.
const ApprovalTTL = 10 * time.Minute

// Combine returns what an answer to several asking rules has to come to: roles that whoever approves holds all of, in
// order of name and none for anyone who may approve; of how many people; and for how long it counts, 0 where no rule
// says. The strictest of each holds, so that no rule is satisfied by less than it asks.
func Combine(asks []Rule) (roles []string, count int, ttl time.Duration) {
	count = 1
	for _, r := range asks {
		if r.Role != "" && !slices.Contains(roles, r.Role) {
			roles = append(roles, r.Role)
		}
		count = max(count, r.Count)
		if r.TTL > 0 && (ttl == 0 || r.TTL < ttl) {
			ttl = r.TTL
		}
	}
	slices.Sort(roles)
	return roles, count, ttl
}

// Want is a credential that a capability needs and the variable it arrives in.
type Want struct {
	Name string
	Env  string
}

// Lease is what was lent for one call. Secret values stand in Env alone; IDs go into the receipt.
type Lease struct {
	IDs     []string
	Env     []string // NAME=value
	Secrets []Secret // the values by themselves, for redaction
	Return  func()   // ends the lease; never nil
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
