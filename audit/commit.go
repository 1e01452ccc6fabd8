package audit

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// Salt is 32 random bytes, kept with one body and forgotten with it.
type Salt [32]byte

// String says nothing: with it a body can be guessed.
func (Salt) String() string { return "***" }

// Commitment stands in an entry for a body that is kept outside: it says how long that is, and nothing else to
// who does not have body and salt. Without them it stays what it was, and so does the entry.
type Commitment struct {
	Length uint64 `json:"length"`     // of the body, in bytes
	Digest Hash   `json:"commitment"` // SHA-256( "bailey.audit/body/v1" || 0x00 || salt || length || body )
}

// Commit returns the commitment to body. The salt is random and of this body alone.
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

// Check tells whether body is the one that was committed to.
func (c Commitment) Check(salt Salt, body []byte) error {
	got := Commit(salt, body)
	if c.Length != got.Length || subtle.ConstantTimeCompare(c.Digest[:], got.Digest[:]) != 1 {
		return fmt.Errorf("these %d bytes, with this salt, are not the body of %d that was committed to", got.Length, c.Length)
	}
	return nil
}
