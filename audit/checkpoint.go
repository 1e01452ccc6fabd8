package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
)

// MaxNote bounds a signed checkpoint in bytes.
const MaxNote = 32 << 10

// Checkpoint is the statement that a log signs: its first Size entries have this root. The zero Checkpoint stands for
// the state before the first signature.
type Checkpoint struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
	Root   Hash   `json:"root"`
}

// Text returns the note's text: three lines (c2sp.org/tlog-checkpoint).
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// ParseCheckpoint parses a note's text. It refuses a fourth line, because no auditor could check its content.
func ParseCheckpoint(text string) (Checkpoint, error) {
	line := strings.Split(text, "\n")
	if len(line) != 4 {
		return Checkpoint{}, errors.New("a checkpoint must have three lines: origin, size and root")
	}
	size, err := strconv.ParseUint(line[1], 10, 64)
	root, err2 := base64.StdEncoding.DecodeString(line[2])
	if err != nil || err2 != nil || len(root) != len(Hash{}) || size > maxSize || !validKeyName(line[0]) {
		return Checkpoint{}, errors.New("a checkpoint has the log's name, a number of entries and 32 bytes in base64")
	}
	c := Checkpoint{line[0], size, Hash(root)}
	if c.Text() != text {
		return Checkpoint{}, errors.New("the checkpoint is not in canonical form")
	}
	return c, nil
}

// ReadCheckpoint returns the content of a signed checkpoint. It verifies no signature.
func ReadCheckpoint(signed []byte) (Checkpoint, error) {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return ParseCheckpoint(text + "\n")
}

// Extends returns nil if c is of the same log as old and proof shows that its tree begins with old's tree. Otherwise
// the error is a *[Bad]: [Replaced], [Rollback] or [Forked]. Every checkpoint extends the zero Checkpoint.
func (c Checkpoint) Extends(old Checkpoint, proof []Hash) error {
	switch {
	case old == Checkpoint{}:
		return nil
	case c.Origin != old.Origin:
		return &Bad{Entry: 1, Reason: Replaced,
			Detail: fmt.Sprintf("this checkpoint is of the log %s, the one before it of %s", c.Origin, old.Origin)}
	case c.Size < old.Size:
		return &Bad{Entry: c.Size + 1, Reason: Rollback,
			Detail: fmt.Sprintf("a checkpoint of %d entries follows one of %d", c.Size, old.Size)}
	}
	if err := checkConsistency(proof, c.Size, c.Root, old.Size, old.Root); err != nil {
		return &Bad{Entry: old.Size, Reason: Forked, Detail: err.Error()}
	}
	return nil
}

// Includes returns nil if proof shows that the tree of c holds leaf as the entry numbered seq.
func (c Checkpoint) Includes(seq uint64, leaf Hash, proof []Hash) error {
	return checkInclusion(proof, c.Size, c.Root, seq, leaf)
}

// Trust holds the keys that a verifier trusts. They must have reached it by another way than the ledger.
type Trust struct {
	Keys      []Key // of the log
	Witnesses []Key
	Quorum    int // how many witnesses must have cosigned a checkpoint
}

// Cosignature is a witness's statement that at Time it knew of no larger tree of the log and of no inconsistent one.
type Cosignature struct {
	Witness string    `json:"witness"`
	Time    time.Time `json:"time"` // UTC, in seconds
	key     Key
}

// Signed is a checkpoint whose signatures were verified.
type Signed struct {
	Checkpoint
	From         string        `json:"from,omitempty"` // its name: [Check.Called]
	Keys         []Key         `json:"keys"`           // the trusted keys of the log that signed it
	Cosignatures []Cosignature `json:"cosignatures,omitempty"`
}

// Open verifies a signed checkpoint. A log's key in t with the origin's name must have signed it, and a quorum of t's
// witnesses must have cosigned it. If one signature by a key in t is wrong, the checkpoint is invalid. Signatures by
// keys that are not in t are ignored. The error is a *[Bad] with the reason [Unsigned] or [Unwitnessed].
func (t Trust) Open(signed []byte) (Signed, error) {
	n, err := openNote(signed, t)
	if err != nil {
		return Signed{}, err
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return Signed{}, newUnsignedBad("%v", err)
	}
	s := Signed{Checkpoint: c}
	known := t.byName()
	for _, sig := range n.Sigs {
		switch k := known[keyID{sig.Name, sig.Hash}]; {
		case k.Witness():
			s.Cosignatures = append(s.Cosignatures, Cosignature{k.Name(), cosignedAt(sig), k})
		case k.Name() == c.Origin:
			s.Keys = append(s.Keys, k)
		}
	}
	if len(s.Keys) == 0 {
		return Signed{}, t.newUntrustedBad(c.Origin, signerIDs(signed))
	}
	if n := s.witnessCount(); n < t.Quorum {
		return Signed{}, &Bad{Reason: Unwitnessed,
			Detail: fmt.Sprintf("%d of the %d named witnesses cosigned it, but %d are required", n,
				len(t.Witnesses), t.Quorum)}
	}
	return s, nil
}

// witnessCount counts the witnesses that cosigned. One key under two names counts once.
func (s Signed) witnessCount() int {
	distinct := map[[32]byte]bool{}
	for _, c := range s.Cosignatures {
		distinct[c.key.public] = true
	}
	return len(distinct)
}

func newUnsignedBad(format string, args ...any) *Bad {
	return &Bad{Reason: Unsigned, Detail: fmt.Sprintf(format, args...)}
}

type keyID struct {
	name string
	hash uint32
}

// byName returns each key of t once.
func (t Trust) byName() map[keyID]Key {
	known := make(map[keyID]Key)
	for _, k := range t.Keys {
		if !k.Witness() {
			known[keyID{k.Name(), k.KeyHash()}] = k
		}
	}
	for _, k := range t.Witnesses {
		if k.Witness() {
			known[keyID{k.Name(), k.KeyHash()}] = k
		}
	}
	return known
}

// openNote verifies a note's signatures. It refuses a second encoding of the same note, for example base64 with unused bits
// that are not zero, or a signature that occurs twice.
func openNote(signed []byte, t Trust) (*note.Note, error) {
	if len(signed) > MaxNote {
		return nil, newUnsignedBad("the note is longer than %d bytes", MaxNote)
	}
	var list []note.Verifier
	for _, k := range t.byName() {
		list = append(list, k)
	}
	n, err := note.Open(signed, note.VerifierList(list...))
	if err != nil {
		return nil, explainOpenError(signed, t, err)
	}
	length := len(n.Text) + len("\n")
	for _, sigs := range [][]note.Signature{n.Sigs, n.UnverifiedSigs} {
		for _, s := range sigs {
			if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
				return nil, newUnsignedBad("a signature of %s is not in canonical form", s.Name)
			}
			length += len("— ") + len(s.Name) + len(" ") + len(s.Base64) + len("\n")
		}
	}
	if length != len(signed) {
		return nil, newUnsignedBad("it has the same signature twice")
	}
	return n, nil
}

// cosignedAt returns the time in a verified cosignature.
func cosignedAt(s note.Signature) time.Time {
	raw, _ := base64.StdEncoding.DecodeString(s.Base64) // already verified
	when, _, _ := splitCosignature(raw[4:])
	return time.Unix(int64(when), 0).UTC()
}

// The functions of this file explain why a text is not a signed or not a trusted checkpoint. The messages help an
// operator to find the right file or key.

// explainOpenError explains why [note.Open] accepted no signature.
func explainOpenError(signed []byte, t Trust, err error) *Bad {
	if bad := checkShape(signed); bad != nil {
		return bad
	}
	var wrong *note.InvalidSignatureError
	var none *note.UnverifiedNoteError
	switch {
	case errors.As(err, &none):
		origin, _, _ := strings.Cut(none.Note.Text, "\n")
		return t.newUntrustedBad(origin, signerIDs(signed))
	case errors.As(err, &wrong):
		return newUnsignedBad("the signature of %s+%08x is invalid: the checkpoint was changed, or another key of the same name signed it", wrong.Name, wrong.Hash)
	}
	return newUnsignedBad("it is not a checkpoint: its signatures are malformed")
}

// newUntrustedBad returns the error for a checkpoint that no trusted key signed. The error names the keys that signed it.
func (t Trust) newUntrustedBad(origin string, by []keyID) *Bad {
	var signed, trusted []string
	for _, id := range by {
		if id.name == origin {
			signed = append(signed, id.String())
		}
	}
	for _, k := range t.Keys {
		trusted = append(trusted, keyID{k.Name(), k.KeyHash()}.String())
	}
	switch {
	case len(signed) == 0:
		return newUnsignedBad("it has no signature of the log %s", origin)
	case len(trusted) == 0:
		return newUnsignedBad("no key was given, and it is signed by %s", strings.Join(signed, " and "))
	}
	return newUnsignedBad("it is signed by %s, but the trusted key is %s", strings.Join(signed, " and "),
		strings.Join(trusted, ", "))
}

func (k keyID) String() string { return fmt.Sprintf("%s+%08x", k.name, k.hash) }

// Cosigned reports whether a signed checkpoint carries signatures by parties other than its log. It verifies none of
// them.
func Cosigned(signed []byte) bool {
	c, err := ReadCheckpoint(signed)
	return err == nil && slices.ContainsFunc(signerIDs(signed), func(k keyID) bool { return k.name != c.Origin })
}

// maxJoined bounds the number of signature lines that [Join] returns.
const maxJoined = 32

// Join returns the checkpoint that both notes hold, with the signatures of both. If both have a signature by the same
// key, the one in b is used. Join verifies no signature. It refuses a name with unprintable characters.
func Join(a, b []byte) ([]byte, error) {
	text, _, _ := strings.Cut(string(a), "\n\n")
	if other, _, _ := strings.Cut(string(b), "\n\n"); other != text {
		return nil, errors.New("the notes hold two checkpoints")
	}
	var order []keyID
	line := map[keyID]string{}
	for _, signed := range [][]byte{a, b} {
		_, lines, _ := strings.Cut(string(signed), "\n\n")
		for l := range strings.Lines(lines) {
			k, ok := idOf(l)
			if !ok || strings.ContainsFunc(k.name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				return nil, fmt.Errorf("%.80q is not a signature", l)
			}
			if line[k] == "" {
				order = append(order, k)
			}
			line[k] = l
		}
	}
	if len(order) > maxJoined {
		return nil, fmt.Errorf("there are %d signatures, but at most %d are allowed", len(order), maxJoined)
	}
	joined := []byte(text + "\n\n")
	for _, k := range order {
		joined = append(joined, line[k]...)
	}
	return joined, nil
}

// signerIDs returns the keys that the signature lines of a note name, verified or not.
func signerIDs(signed []byte) (list []keyID) {
	_, lines, _ := strings.Cut(string(signed), "\n\n")
	for line := range strings.Lines(lines) {
		if k, ok := idOf(line); ok && len(list) < 100 {
			list = append(list, k)
		}
	}
	return list
}

func idOf(line string) (keyID, bool) {
	name, text, ok := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "— "), " ")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) < 5 || !validKeyName(name) || !strings.HasPrefix(line, "— ") {
		return keyID{}, false
	}
	return keyID{name, binary.BigEndian.Uint32(raw)}, true
}

// checkShape returns a *Bad for the first line that cannot be part of a signed checkpoint, or nil.
func checkShape(signed []byte) *Bad {
	switch {
	case len(signed) == 0:
		return newUnsignedBad("it is not a checkpoint: it is empty")
	case !utf8.Valid(signed):
		return newUnsignedBad("it is not a checkpoint: it is not UTF-8")
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(signed), "\n"), "\n")
	if strings.HasSuffix(string(signed), "\n") {
		lines[len(lines)-1] += "\n"
	}
	for i, line := range lines {
		if what := lineProblem(i, strings.TrimSuffix(line, "\n")); what != "" {
			return newUnsignedBad("it is not a checkpoint: line %d %s", i+1, what)
		}
		if !strings.HasSuffix(line, "\n") {
			return newUnsignedBad("it is not a checkpoint: line %d does not end with a newline", i+1)
		}
	}
	if len(lines) < 5 {
		return newUnsignedBad("it is not a checkpoint: it ends after line %d, before any signature", len(lines))
	}
	return nil
}

// lineProblem says why line i of a checkpoint is malformed. It returns "" if the line is well-formed.
func lineProblem(i int, line string) string {
	if strings.HasSuffix(line, "\r") {
		return "ends in CR LF: the file was copied as text, which changed its bytes"
	}
	switch i {
	case 0:
		if !validKeyName(line) {
			return "is not the name of a log"
		}
	case 1:
		if n, err := strconv.ParseUint(line, 10, 64); err != nil || strconv.FormatUint(n, 10) != line {
			return "is not a number of entries"
		}
	case 2:
		if root, err := base64.StdEncoding.DecodeString(line); err != nil || len(root) != len(Hash{}) {
			return "is not 32 bytes in base64"
		}
	case 3:
		if line != "" {
			return "is not empty"
		}
	default:
		if _, ok := idOf(line); !ok {
			return "is not a signature of the form — NAME BASE64"
		}
	}
	return ""
}

// MaxRequest bounds a [Request] in bytes.
const MaxRequest = MaxNote + 8<<10

// Request asks a witness to cosign a checkpoint (c2sp.org/tlog-witness, add-checkpoint). It consists of the line "old
// N", the proof that the checkpoint begins with the first N entries, one hash in base64 per line, an empty line, and
// the signed checkpoint.
type Request struct {
	Old        uint64 // how many entries the witness saw last
	Proof      []Hash
	Checkpoint []byte
}

// maxProof bounds the hashes of a consistency proof: a tree has at most 2^63 leaves.
const maxProof = 63

// Text returns the request's one encoding.
func (r Request) Text() []byte {
	b := fmt.Appendf(nil, "old %d\n", r.Old)
	for _, h := range r.Proof {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	b = append(b, '\n')
	return append(b, r.Checkpoint...)
}

// ParseRequest accepts only the output of Text. It verifies nothing.
func ParseRequest(text []byte) (Request, error) {
	malformed := errors.New(`a request to a witness is a line "old N", a proof, an empty line and a signed checkpoint`)
	head, note, ok := bytes.Cut(text, []byte("\n\n"))
	number, proof, some := bytes.Cut(head, []byte("\n"))
	digits, old := bytes.CutPrefix(number, []byte("old "))
	if !ok || !old || len(text) > MaxRequest {
		return Request{}, malformed
	}
	r := Request{Checkpoint: bytes.Clone(note)}
	var err error
	if r.Old, err = strconv.ParseUint(string(digits), 10, 64); err != nil {
		return Request{}, malformed
	}
	for line := range bytes.SplitSeq(proof, []byte("\n")) {
		if !some {
			break
		}
		raw, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil || len(raw) != len(Hash{}) || len(r.Proof) == maxProof {
			return Request{}, malformed
		}
		r.Proof = append(r.Proof, Hash(raw))
	}
	if !bytes.Equal(r.Text(), text) {
		return Request{}, malformed
	}
	return r, nil
}
