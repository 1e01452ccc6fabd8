// Package audit is the format of Bailey's ledger and its verification. It is pure: an auditor needs this
// package and a file.
//
// # Lines
//
// A ledger is one or more segments, 00000001.jsonl and up, read in order. A segment is lines of exactly
//
//	{"hash":"HASH","entry":ENTRY}
//
// each ended by one newline (0x0a) and at most [MaxLine] bytes long with it. HASH is 64 lower-case
// hexadecimal digits, ENTRY the entry's raw bytes. No byte may stand anywhere else.
//
//	HASH = SHA-256( previous HASH as 32 bytes || raw bytes of ENTRY )
//
// The previous hash of the first entry is 32 zero bytes. The chain runs on from one segment to the next.
// The hash covers bytes and never a parsed value: no entry has two encodings that both verify.
//
// # Entries
//
// ENTRY is exactly these four members, in this order and without white space:
//
//		{"seq":N,"time":"T","kind":"K","data":D}
//
//	  - N is 1 for the first entry and one more for each that follows: decimal, no sign, no leading zero.
//	  - T is the writer's wall clock in UTC, RFC 3339 with as many fractional digits as are not zero, at most
//	    nine, and "Z". Clocks are set back: order is N, never T. Verification counts every step backward.
//	  - K matches [a-z][a-z0-9._-]* and has at most 64 characters.
//	  - D is a JSON object (RFC 8259) in UTF-8 without white space outside strings, in which no object holds
//	    a key twice, keys being compared after their escapes are resolved.
//
// The first line of a ledger that began on the host "castle" is
//
//	{"hash":"2b637349740fcb8ac0496e00b33251951a161abd10672915ee01a023e7add851","entry":{"seq":1,"time":"2026-11-03T09:00:01Z","kind":"genesis","data":{"format":1,"origin":"000102030405060708090a0b0c0d0e0f","host":"castle"}}}
//
// and the hash in it that of 32 zero bytes and the 136 bytes from {"seq" to the last brace but one. The
// package's example goes on from there; testdata/vectors.json says of many ledgers, good and bad, what
// verification has to find.
//
// # Kinds
//
// Entry 1, and no other, is of kind "genesis": it binds the ledger to where it began. Its data is exactly
// {"format":1,"origin":"O","host":"H"}, O being 128 random bits as 32 lower-case hexadecimal digits and H
// 1 to 253 characters out of [A-Za-z0-9._-]; its time is when the ledger began.
//
// The data of "intent" and "outcome" is a [bailey.Intent] and a [bailey.Outcome]. Both name a receipt in
// their member "receipt", 1 to 64 characters out of [A-Za-z0-9._-], and no two of their own members may
// differ in case alone, since readers exist that would take one for the other. A receipt has one intent and
// after it at most one outcome. An intent without outcome is open: a call in progress, or one that a crash cut off.
//
// Where an outcome has a member "cage" with a member "planDigest", that is 64 lower-case hexadecimal digits,
// and an entry of kind "plan" before it has the same. The data of "plan" is either
//
//	{"digest":"D","text":"T"}
//	{"digest":"D","redacted":true}
//
// D being the SHA-256 of T in UTF-8: the plan of the cage that held the call. T is not empty, and where
// it holds U+FFFD that stands there as it is and not as an escape. A plan whose text holds a secret is
// withheld in the second form: its digest cannot be recomputed, and [Report.Plans] says of how many.
//
// Every other kind is a note, and its data is the writer's affair.
//
// # A torn tail
//
// A crash may leave bytes after the last good line: an unfinished line, zeros, rubbish. They are a torn
// tail when no well-formed line stands among them. Verification reports them apart, as [Torn]; the writer
// cuts them at its next start, keeps them aside and records that in a note of kind "repair".
//
// # What this does not prove
//
// The chain proves order and that nothing inside was changed without rewriting everything after it. It
// does not prove honesty: whoever can write the file can rewrite it from any entry on, or cut its tail, and
// what is left verifies. Only a copy of [Report.Head] kept where the writer cannot reach, a witness, shows
// that. And what never passed the gate is in no ledger.
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
