package audit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"bailey"
)

// MaxNote bounds a signed checkpoint in bytes.
const MaxNote = 32 << 10

// Checkpoint is what a log signs: that its first Size entries have that root. The zero Checkpoint is what
// has been signed before the first.
type Checkpoint struct {
	Origin string `json:"origin"`
	Size   uint64 `json:"size"`
	Root   Hash   `json:"root"`
}

// Text returns the note's text: three lines (c2sp.org/tlog-checkpoint).
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// ParseCheckpoint reads a note's text. A fourth line is refused: no auditor could check what it says.
func ParseCheckpoint(text string) (Checkpoint, error) {
	line := strings.Split(text, "\n")
	if len(line) != 4 {
		return Checkpoint{}, errors.New("a checkpoint is three lines: origin, size and root")
	}
	size, err := strconv.ParseUint(line[1], 10, 64)
	root, err2 := base64.StdEncoding.DecodeString(line[2])
	if err != nil || err2 != nil || len(root) != len(Hash{}) || size > maxSize || !validKeyName(line[0]) {
		return Checkpoint{}, errors.New("a checkpoint is a log's name, a number of entries and 32 bytes in base64")
	}
	c := Checkpoint{line[0], size, Hash(root)}
	if c.Text() != text {
		return Checkpoint{}, errors.New("the checkpoint is not in its one encoding")
	}
	return c, nil
}

// ReadCheckpoint reads what a signed checkpoint says, and looks at no signature.
func ReadCheckpoint(signed []byte) (Checkpoint, error) {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return ParseCheckpoint(text + "\n")
}

// Extends tells whether c is of the same log as old and proof shows that its tree begins with old's. What is
// wrong is a *[Bad]: [Replaced], [Rollback] or [Forked]. Everything extends the zero Checkpoint.
func (c Checkpoint) Extends(old Checkpoint, proof []Hash) error {
	switch {
	case old == Checkpoint{}:
		return nil
	case c.Origin != old.Origin:
		return &Bad{Entry: 1, Reason: Replaced, Detail: fmt.Sprintf("this is of the log %s, the checkpoint before it of %s", c.Origin, old.Origin)}
	case c.Size < old.Size:
		return &Bad{Entry: c.Size + 1, Reason: Rollback, Detail: fmt.Sprintf("a checkpoint of %d entries after one of %d", c.Size, old.Size)}
	}
	if err := checkConsistency(proof, c.Size, c.Root, old.Size, old.Root); err != nil {
		return &Bad{Entry: old.Size, Reason: Forked, Detail: err.Error()}
	}
	return nil
}

// Includes tells whether proof shows that the tree of c holds leaf as the entry numbered seq.
func (c Checkpoint) Includes(seq uint64, leaf Hash, proof []Hash) error {
	return checkInclusion(proof, c.Size, c.Root, seq, leaf)
}

// Sign returns c as a note signed by by. It signs only what proof shows to extend last, the checkpoint
// signed last; and only in the log's own name.
func (c Checkpoint) Sign(last Checkpoint, proof []Hash, by note.Signer) ([]byte, error) {
	if err := c.Extends(last, proof); err != nil {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the checkpoint is not signed: it does not extend the one signed last", Err: err,
			Hint: "the ledger was cut, restored or exchanged: keep it and find out which, then begin a new one"}
	}
	if _, err := ParseCheckpoint(c.Text()); err != nil || by.Name() != c.Origin {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the checkpoint is not signed: it is not of the log whose key this is", Err: err,
			Hint: "a log's key carries the name of the log's origin"}
	}
	return note.Sign(&note.Note{Text: c.Text()}, by)
}

// Cosign returns the note signed with a witness's cosignature added. It signs only what the log has signed, by
// one of the keys in t, and what proof shows to extend last, the checkpoint that the witness saw last.
func Cosign(signed []byte, t Trust, last Checkpoint, proof []Hash, by note.Signer) ([]byte, error) {
	s, err := t.Open(signed)
	if err != nil {
		return nil, err
	}
	if err := s.Extends(last, proof); err != nil {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: "the checkpoint is not cosigned: it does not extend the one seen last", Err: err,
			Hint: "this is what a witness is for: keep both checkpoints and look into the log"}
	}
	n, err := open(signed, t)
	if err != nil {
		return nil, err
	}
	return note.Sign(n, by)
}

// Trust is what a verifier holds on to: keys that reached it by another way than the ledger.
type Trust struct {
	Keys      []Key // of the log
	Witnesses []Key
	Quorum    int // how many witnesses have to have cosigned a checkpoint
}

// Cosignature is a witness's word that at Time it knew of no larger tree of the log, and none inconsistent.
type Cosignature struct {
	Witness string    `json:"witness"`
	Time    time.Time `json:"time"` // UTC, in seconds
	key     Key
}

// Signed is a checkpoint whose signatures were verified.
type Signed struct {
	Checkpoint
	From         string        `json:"from,omitempty"` // what it is called: [Check.Called]
	Keys         []Key         `json:"keys"`           // of the log: those trusted that signed it
	Cosignatures []Cosignature `json:"cosignatures,omitempty"`
}

// Open verifies a signed checkpoint: by a log's key in t that has the origin's name, and by a quorum of its
// witnesses. One wrong signature of a key in t makes it none; signatures of keys that t does not know count
// for nothing. What is wrong is a *[Bad] with reason [Unsigned] or [Unwitnessed].
func (t Trust) Open(signed []byte) (Signed, error) {
	n, err := open(signed, t)
	if err != nil {
		return Signed{}, err
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return Signed{}, unsigned("%v", err)
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
		return Signed{}, t.strange(c.Origin, signers(signed))
	}
	if n := s.witnesses(); n < t.Quorum {
		return Signed{}, &Bad{Reason: Unwitnessed, Detail: fmt.Sprintf("%d of the %d witnesses that were named cosigned it, and %d are wanted", n, len(t.Witnesses), t.Quorum)}
	}
	return s, nil
}

// witnesses counts those who cosigned: one key under two names is one.
func (s Signed) witnesses() int {
	distinct := map[[32]byte]bool{}
	for _, c := range s.Cosignatures {
		distinct[c.key.public] = true
	}
	return len(distinct)
}

func unsigned(format string, args ...any) *Bad {
	return &Bad{Reason: Unsigned, Detail: fmt.Sprintf(format, args...)}
}

type keyID struct {
	name string
	hash uint32
}

// byName returns the keys of t, each once.
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

// open verifies a note's signatures and refuses what has more than one encoding: base64 with bits that
// count for nothing, a signature that stands twice.
func open(signed []byte, t Trust) (*note.Note, error) {
	if len(signed) > MaxNote {
		return nil, unsigned("the note is longer than %d bytes", MaxNote)
	}
	var list []note.Verifier
	for _, k := range t.byName() {
		list = append(list, k)
	}
	n, err := note.Open(signed, note.VerifierList(list...))
	if err != nil {
		return nil, unopened(signed, t, err)
	}
	length := len(n.Text) + len("\n")
	for _, sigs := range [][]note.Signature{n.Sigs, n.UnverifiedSigs} {
		for _, s := range sigs {
			if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
				return nil, unsigned("a signature of %s is not in its one encoding", s.Name)
			}
			length += len("— ") + len(s.Name) + len(" ") + len(s.Base64) + len("\n")
		}
	}
	if length != len(signed) {
		return nil, unsigned("a signature stands twice")
	}
	return n, nil
}

// cosignedAt returns the time in a cosignature that was verified.
func cosignedAt(s note.Signature) time.Time {
	raw, _ := base64.StdEncoding.DecodeString(s.Base64) // it was verified
	when, _, _ := cosignature(raw[4:])
	return time.Unix(int64(when), 0).UTC()
}
