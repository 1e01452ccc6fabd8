package bailey

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// Crockford's alphabet in lower case keeps identifiers sortable, speakable and safe in file names.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns 26 characters: 48 bits of milliseconds since 1970, then 80 random bits.
func newID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:]) // never fails (crypto/rand)
	return idEncoding.EncodeToString(b[:])
}

// NewReceiptID and its like return fresh identifiers, ordered by time.
func NewReceiptID() ReceiptID   { return ReceiptID("r-" + newID()) }
func NewSessionID() SessionID   { return SessionID("s-" + newID()) }
func NewApprovalID() ApprovalID { return ApprovalID("a-" + newID()) }
func NewGrantID() GrantID       { return GrantID("g-" + newID()) }
