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

	"bailey/internal/wire"

	"bailey"
)

// The ledger's kinds of entry for sessions that outlive a connection. The data of both is an [Issued].
const (
	IssueEvent = "session.issue"
	UseEvent   = "session.use" // it is still used: noted once an hour, so that its end holds over a restart
)

// A bearer that nobody used for so long is none any more, and of more than so many the one that was used least lately.
const (
	bearerTTL  = 8 * time.Hour
	bearerNote = time.Hour
	maxIssued  = 1000
)

// Issued is a session that a bearer was given for. The bearer itself is nowhere: the session's id is its hash.
type Issued struct {
	Session bailey.SessionID `json:"session"`
	Agent   string           `json:"agent"`
	UID     int              `json:"uid"`
	At      time.Time        `json:"at"` // of its issue, or of its last use that is known
	// Of a session of an agent inside the wall: by which door its calls come, and its project, which is its workspace where the
	// home names none. The agent is who the bearer was given to, whoever connects.
	Door string `json:"door,omitempty"`
	Dir  string `json:"dir,omitempty"`
}

// IssuedSessions are those that count, the one that was used least lately first.
type IssuedSessions []Issued

// Keep takes one in, as the ledger's events have it, and lets go of what has had its time by then.
func (l *IssuedSessions) Keep(i Issued) {
	kept := make(IssuedSessions, 0, len(*l)+1) // of its own: whoever has the list of before keeps that
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

// newBearer returns 128 random bits in a form that the environment takes.
func newBearer() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return bearerPrefix + hex.EncodeToString(b[:])
}

// idEncoding is that of every other id.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// sessionOf is the id of a bearer's session: 128 bits of a SHA-256, which nobody finds the bearer by.
func sessionOf(bearer string) (bailey.SessionID, error) {
	digits, ok := strings.CutPrefix(bearer, bearerPrefix)
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != 16 || hex.EncodeToString(b) != digits {
		return "", &bailey.Error{Kind: bailey.Invalid, Message: wire.SessionVariable + " holds no session", Hint: freshSession}
	}
	sum := sha256.Sum256([]byte("bailey session 1\x00" + bearer))
	return bailey.SessionID("s-" + idEncoding.EncodeToString(sum[:16])), nil
}

const freshSession = `eval "$(bailey session)" begins another one; unset ` + wire.SessionVariable + ` makes each call one of its own`

func unknownSession() error {
	return &bailey.Error{Kind: bailey.NotFound, Hint: freshSession,
		Message: fmt.Sprintf("the session of %s is none that this gateway knows: it issued no such one, or nobody used it for %d hours", wire.SessionVariable, int(bearerTTL.Hours()))}
}

func foreignSession() error {
	return &bailey.Error{Kind: bailey.Denied, Message: "the session of " + wire.SessionVariable + " was given to another agent or user", Hint: freshSession}
}
