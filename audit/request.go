package audit

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
)

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
