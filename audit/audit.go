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

// MaxLine bounds a line in bytes, including its frame and newline. A writer must keep space free for two lines for each
// open intent: the plan and the outcome.
const MaxLine = 64 << 10

// MaxEntry bounds the raw bytes of an entry.
const MaxEntry = MaxLine - (len(frameHash) + 2*len(Hash{}) + len(frameEntry) + len(frameEnd))

// The kinds that have a meaning in this package.
const (
	KindGenesis = "genesis"
	KindIntent  = "intent"
	KindOutcome = "outcome"
	KindRepair  = "repair"
	KindPlan    = "plan"
	KindSegment = "segment"
	KindKey     = "key"
)

// Hash is a SHA-256 hash of the chain. The zero value is the hash before the first entry.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes 64 lower-case hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText accepts only the output of MarshalText.
func (h *Hash) UnmarshalText(text []byte) error {
	got, ok := parseHash(text)
	if !ok {
		return fmt.Errorf("hash %.80q is not 64 lower-case hexadecimal digits", text)
	}
	*h = got
	return nil
}

// Entry is one entry of a ledger with its place in the chain.
type Entry struct {
	Seq     uint64
	Time    time.Time // UTC
	Kind    string
	Data    json.RawMessage
	Receipt bailey.ReceiptID // named by an intent or outcome in its data; [Append] ignores it
	Plan    string           // the plan digest named by an outcome in its data; [Append] ignores it
	Prev    Hash
	Hash    Hash
	Leaf    Hash // the line's leaf in the Merkle tree; [Append] ignores it
}

// Head is a position in a ledger: the number and hash of its last entry. The zero Head is before the first entry.
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

// Name returns the name of the ledger in checkpoints, which is their origin: bailey/HOST/ORIGIN.
func (g Genesis) Name() string { return "bailey/" + g.Host + "/" + g.Origin }
