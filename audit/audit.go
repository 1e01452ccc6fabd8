package audit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"bailey"
)

// Format is the version of the format that genesis names.
const Format = 1

// MaxLine bounds a line, its frame and newline included, in bytes. A writer keeps space free for two of
// them for each open intent: the plan and the outcome.
const MaxLine = 64 << 10

// MaxEntry bounds the raw bytes of an entry.
const MaxEntry = MaxLine - (len(frameHash) + 2*len(Hash{}) + len(frameEntry) + len(frameEnd))

// The kinds that have a meaning here.
const (
	KindGenesis = "genesis"
	KindIntent  = "intent"
	KindOutcome = "outcome"
	KindRepair  = "repair"
	KindPlan    = "plan"
	KindSegment = "segment"
	KindKey     = "key"
)

// Hash is a SHA-256 of the chain. Its zero value precedes the first entry.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes 64 lower-case hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText accepts what MarshalText writes and nothing else.
func (h *Hash) UnmarshalText(text []byte) error {
	got, ok := parseHash(text)
	if !ok {
		return fmt.Errorf("hash %.80q is not 64 lower-case hexadecimal digits", text)
	}
	*h = got
	return nil
}

// Entry is one entry of a ledger, with its place in the chain.
type Entry struct {
	Seq     uint64
	Time    time.Time // UTC
	Kind    string
	Data    json.RawMessage
	Receipt bailey.ReceiptID // which an intent or outcome names in its data; [Append] does not read it
	Plan    string           // the plan digest that an outcome names in its data; [Append] does not read it
	Prev    Hash
	Hash    Hash
	Leaf    Hash // of the line in the Merkle tree; [Append] does not read it
}

// Head is a place in a ledger: the number and hash of its last entry. The zero Head is before the first.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"`
}

// Genesis is the data of the first entry.
type Genesis struct {
	Format int    `json:"format"`
	Origin string `json:"origin"` // 32 lower-case hexadecimal digits
	Host   string `json:"host"`
}

// Name returns the ledger's name in checkpoints, their origin: bailey/HOST/ORIGIN.
func (g Genesis) Name() string { return "bailey/" + g.Host + "/" + g.Origin }
