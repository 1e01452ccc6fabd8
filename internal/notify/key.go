package notify

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"bailey"
)

// Key signs webhook messages. The zero Key is not a usable key.
type Key struct{ raw []byte }

const (
	keyPrefix      = "whsec_"
	minKey, maxKey = 24, 64 // bytes, from Standard Webhooks
)

// NewKey makes a key of 32 random bytes.
func NewKey() Key {
	k := Key{make([]byte, 32)}
	rand.Read(k.raw) // never fails (crypto/rand)
	return k
}

// ParseKey parses a key in the format of [Key.Text]; a newline may follow.
func ParseKey(text []byte) (Key, error) {
	s, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), keyPrefix)
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if !ok || err != nil || strings.ContainsAny(s, "\r\n") || len(raw) < minKey || len(raw) > maxKey {
		return Key{}, bailey.Invalid.Errorf("bailey notify key --new makes another",
			"the key of the webhook is not %s and base64 of %d to %d bytes", keyPrefix, minKey, maxKey)
	}
	return Key{raw}, nil
}

// Text returns the key itself, in the format for receivers.
func (k Key) Text() bailey.Secret {
	return bailey.NewSecret(keyPrefix + base64.StdEncoding.EncodeToString(k.raw))
}

// Fingerprint distinguishes keys without revealing them.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256(append([]byte("bailey notify key\x00"), k.raw...))
	return fmt.Sprintf("%x", sum[:8])
}

func (Key) String() string               { return "***" }
func (Key) GoString() string             { return "***" }
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// signBody returns the signature of a body that is sent with an id at a time.
func (k Key) signBody(id string, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, k.raw)
	fmt.Fprintf(h, "%s.%d.", id, at.Unix())
	h.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}
