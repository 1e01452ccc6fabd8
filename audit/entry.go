package audit

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// Salt is 32 random bytes that are kept and deleted together with one body.
type Salt [32]byte

// String hides the salt, because a body can be guessed with it.
func (Salt) String() string { return "***" }

// Commitment represents in an entry a body that is kept outside. To a party without the body and the salt it shows only
// the length. If both are deleted, the commitment and the entry stay unchanged.
type Commitment struct {
	Length uint64 `json:"length"`     // of the body, in bytes
	Digest Hash   `json:"commitment"` // SHA-256( "bailey.audit/body/v1" || 0x00 || salt || length || body )
}

// Commit returns the commitment to body. The salt must be random and used for this body alone.
func Commit(salt Salt, body []byte) Commitment {
	c := Commitment{Length: uint64(len(body))}
	d := sha256.New()
	d.Write([]byte("bailey.audit/body/v1\x00"))
	d.Write(salt[:])
	d.Write(binary.BigEndian.AppendUint64(nil, c.Length))
	d.Write(body)
	d.Sum(c.Digest[:0])
	return c
}

// Check returns nil if c is the commitment to body with this salt.
func (c Commitment) Check(salt Salt, body []byte) error {
	got := Commit(salt, body)
	if c.Length != got.Length || subtle.ConstantTimeCompare(c.Digest[:], got.Digest[:]) != 1 {
		return fmt.Errorf("these %d bytes with this salt do not match the committed body of %d bytes", got.Length,
			c.Length)
	}
	return nil
}

// The frame of a line, which encloses the hash and the raw entry.
const (
	frameHash  = `{"hash":"`
	frameEntry = `","entry":`
	frameEnd   = "}\n"
)

// hashEntry returns the hash of an entry whose predecessor has the hash prev.
func hashEntry(prev Hash, raw []byte) (h Hash) {
	d := sha256.New() // the compiler knows the concrete type, so this allocates nothing
	d.Write(prev[:])
	d.Write(raw)
	d.Sum(h[:0])
	return h
}

// Append encodes e as the successor of the entry whose hash is prev. It returns the complete line and the entry's hash;
// it ignores e.Prev and e.Hash. No verification would accept an entry that Append refuses.
func Append(prev Hash, e Entry) (line []byte, h Hash, err error) {
	b, err := NewBody(e.Kind, e.Data)
	if err != nil {
		return nil, Hash{}, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	line, h, err = b.Append(make([]byte, 0, len(e.Data)+256), Head{e.Seq - 1, prev}, e.Time)
	if err != nil {
		return nil, Hash{}, err
	}
	return line, h, nil
}

// Body is the checked kind and data of an entry. This is all that can be checked before its position is known.
type Body struct {
	kind string
	data []byte
}

// NewBody checks kind and data against the format. It keeps data, so the caller must not change it.
func NewBody(kind string, data []byte) (Body, error) {
	if !validKind(kind) {
		return Body{}, fmt.Errorf("kind %.80q is not [a-z][a-z0-9._-]*, at most 64 characters", kind)
	}
	if _, _, err := checkData(kind, data); err != nil {
		return Body{}, err
	}
	return Body{kind, data}, nil
}

// Append appends to lines the line of the entry after prev. It also returns that entry's hash. If it fails, it returns
// lines unchanged.
func (b Body) Append(lines []byte, prev Head, now time.Time) ([]byte, Hash, error) {
	e := Entry{Seq: prev.Seq + 1, Time: now, Kind: b.kind}
	if e.Seq == 0 {
		return lines, Hash{}, errors.New("the entry has no number")
	}
	if b.kind == "" {
		return lines, Hash{}, fmt.Errorf("entry %d has no kind", e.Seq)
	}
	if y := e.Time.UTC().Year(); y < 0 || y > 9999 {
		return lines, Hash{}, fmt.Errorf("entry %d: the year %d has no RFC 3339 form", e.Seq, y)
	}
	begin := len(lines)
	line := append(lines, frameHash...)
	digits := len(line)
	line = append(line, noHash...)
	line = append(line, frameEntry...)
	raw := len(line)
	line = append(appendEnvelope(line, e), b.data...)
	line = append(line, '}')
	if n := len(line) - raw; n > MaxEntry {
		return lines[:begin], Hash{}, fmt.Errorf("entry %d has %d bytes, more than %d", e.Seq, n, MaxEntry)
	}
	h := hashEntry(prev.Hash, line[raw:])
	hex.Encode(line[digits:], h[:])
	return append(line, frameEnd...), h, nil
}

// noHash reserves the place of a hash in a line.
const noHash = "0000000000000000000000000000000000000000000000000000000000000000"

// appendEnvelope appends the one encoding of an entry's members up to its data.
func appendEnvelope(b []byte, e Entry) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendUint(b, e.Seq, 10)
	b = append(b, `,"time":"`...)
	b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","kind":"`...)
	b = append(b, e.Kind...)
	return append(b, `","data":`...)
}

// parseLine splits a line with its newline into the hash that it claims and the raw entry.
func parseLine(line []byte) (claimed Hash, raw []byte, err error) {
	digits, raw, err := splitLine(line)
	if err != nil {
		return Hash{}, nil, err
	}
	claimed, ok := parseHash(digits)
	if !ok {
		return Hash{}, nil, errors.New("the hash is not 64 lower-case hexadecimal digits")
	}
	return claimed, raw, nil
}

// splitLine splits a line and returns the hash as it is written.
func splitLine(line []byte) (digits, raw []byte, err error) {
	const begin = len(frameHash) + 2*sha256.Size
	switch end := len(line) - len(frameEnd); {
	case len(line) > MaxLine:
		return nil, nil, fmt.Errorf("the line is longer than %d bytes", MaxLine)
	case end < begin+len(frameEntry), string(line[:len(frameHash)]) != frameHash,
		string(line[begin:begin+len(frameEntry)]) != frameEntry:
		return nil, nil, fmt.Errorf("the line does not begin with %s, a hash and %s", frameHash, frameEntry)
	case string(line[end:]) != frameEnd:
		return nil, nil, errors.New("the line does not end in } and a newline")
	default:
		return line[len(frameHash):begin], line[begin+len(frameEntry) : end], nil
	}
}

func parseHash(text []byte) (h Hash, ok bool) {
	if len(text) != 2*len(h) || bytes.ContainsAny(text, "ABCDEF") {
		return Hash{}, false
	}
	_, err := hex.Decode(h[:], text)
	return h, err == nil
}

// parseEntry parses the raw bytes of an entry. It parses leniently, encodes the result, and accepts the entry only if
// that gives the same bytes. So there is one encoding, and only envelope defines it. Data is a copy and does not alias
// raw.
func parseEntry(raw []byte) (e Entry, err error) {
	seq, rest, ok := cutBetween(raw, `{"seq":`, `,"time":"`)
	when, rest, ok2 := cutBetween(rest, "", `","kind":"`)
	kind, data, ok3 := cutBetween(rest, "", `","data":`)
	if !ok || !ok2 || !ok3 || len(data) == 0 || data[len(data)-1] != '}' {
		return Entry{}, fmt.Errorf("the entry is not seq, time, kind and data, in this order")
	}
	e.Kind, e.Data = string(kind), bytes.Clone(data[:len(data)-1])
	if e.Seq, err = strconv.ParseUint(string(seq), 10, 64); err != nil {
		return Entry{}, fmt.Errorf("the entry's number %.40q is malformed", seq)
	}
	if e.Seq == 0 { // the first is 1
		return Entry{}, errors.New("the entry has no number")
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, string(when)); err != nil {
		return Entry{}, fmt.Errorf("the entry's time %.40q is malformed", when)
	}
	e.Time = e.Time.UTC()
	var buf [160]byte
	if !validKind(e.Kind) || !bytes.HasPrefix(raw, appendEnvelope(buf[:0], e)) {
		return Entry{}, fmt.Errorf("the entry's seq, time or kind is not in canonical form")
	}
	e.Receipt, e.Plan, err = checkData(e.Kind, e.Data)
	return e, err
}

// cutBetween returns the bytes between prefix, with which b must begin, and the first sep.
func cutBetween(b []byte, prefix, sep string) (field, rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(prefix))
	if !ok {
		return nil, nil, false
	}
	return bytes.Cut(b, []byte(sep))
}

func validKind(k string) bool {
	return len(k) > 0 && len(k) <= 64 && k[0] >= 'a' && k[0] <= 'z' && containsOnly(k, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	})
}

// validName reports whether s is 1 to most characters from [A-Za-z0-9._-].
func validName(s string, most int) bool {
	return len(s) > 0 && len(s) <= most && containsOnly(s, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	})
}

func containsOnly(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
