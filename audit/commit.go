package audit

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

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
		return fmt.Errorf("these %d bytes, with this salt, are not the body of %d that was committed to", got.Length,
			c.Length)
	}
	return nil
}
