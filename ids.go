package bailey

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// idEncoding is Crockford's base32 alphabet in lower case. Identifiers stay sortable, easy to pronounce and safe in
// file names.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns 26 characters: 48 bits of Unix time in milliseconds, then 80 random bits.
func newID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return idEncoding.EncodeToString(b[:])
}

// NewReceiptID and the functions below return new identifiers, ordered by time.
func NewReceiptID() ReceiptID   { return ReceiptID("r-" + newID()) }
func NewSessionID() SessionID   { return SessionID("s-" + newID()) }
func NewApprovalID() ApprovalID { return ApprovalID("a-" + newID()) }
func NewGrantID() GrantID       { return GrantID("g-" + newID()) }
