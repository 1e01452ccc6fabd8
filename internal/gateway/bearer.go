package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/localapi"
)

// Kinds of ledger entries for sessions that outlive a connection. The data of both is an [Issued].
const (
	IssueEvent = "session.issue"
	UseEvent   = "session.use" // still in use; written hourly, so that a restart does not shorten the session
)

// A bearer expires bearerTTL after its last use. Beyond maxIssued, those with the oldest last use are removed.
const (
	bearerTTL  = 8 * time.Hour
	bearerNote = time.Hour
	maxIssued  = 1000
)

// Issued is a session for which a bearer was issued. The bearer itself is not stored: the session's id is its hash.
type Issued struct {
	Session bailey.SessionID `json:"session"`
	Agent   string           `json:"agent"`
	UID     int              `json:"uid"`
	At      time.Time        `json:"at"` // time of issue, or of the last recorded use
	// Door and Dir are set for an agent inside the agent jail: the front end of its calls, and its project, which is
	// its workspace if the home names none. The agent is the one the bearer was issued to, whichever process connects.
	Door string `json:"door,omitempty"`
	Dir  string `json:"dir,omitempty"`
}

// IssuedSessions are the valid sessions, sorted by last use, oldest first.
type IssuedSessions []Issued

// Keep adds a session from a ledger event and removes expired ones.
func (l *IssuedSessions) Keep(i Issued) {
	kept := make(IssuedSessions, 0, len(*l)+1) // a new slice, so that copies of the old list stay unchanged
	for _, o := range *l {
		if o.Session != i.Session && i.At.Sub(o.At) <= bearerTTL {
			kept = append(kept, o)
		}
	}
	kept = append(kept, i)
	*l = kept[max(0, len(kept)-maxIssued):]
}

func (l IssuedSessions) find(id bailey.SessionID, now time.Time) (Issued, bool) {
	i := slices.IndexFunc(l, func(o Issued) bool { return o.Session == id && now.Sub(o.At) <= bearerTTL })
	if i < 0 {
		return Issued{}, false
	}
	return l[i], true
}

const bearerPrefix = "bs-"

// newBearer returns 128 random bits in a form that fits an environment variable.
func newBearer() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return bearerPrefix + hex.EncodeToString(b[:])
}

// idEncoding is the encoding of all other ids.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// sessionOf returns the id of a bearer's session: 128 bits of a SHA-256, from which the bearer cannot be computed.
func sessionOf(bearer string) (bailey.SessionID, error) {
	digits, ok := strings.CutPrefix(bearer, bearerPrefix)
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != 16 || hex.EncodeToString(b) != digits {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: localapi.SessionVariable + " holds no session", Hint: freshSession}
	}
	sum := sha256.Sum256([]byte("bailey session 1\x00" + bearer))
	return bailey.SessionID("s-" + idEncoding.EncodeToString(sum[:16])), nil
}

const freshSession = `eval "$(bailey session)" begins another one; unset ` + localapi.SessionVariable + ` makes each call one of its own`

func unknownSession() error {
	return &bailey.Error{Kind: bailey.NotFound, Hint: freshSession,
		Message: fmt.Sprintf("the session of %s is none that this gateway knows: it issued no such one, or nobody used it for %d hours", localapi.SessionVariable, int(bearerTTL.Hours()))}
}

func foreignSession() error {
	return &bailey.Error{Kind: bailey.Denied, Message: "the session of " + localapi.SessionVariable + " was given to another agent or user", Hint: freshSession}
}
