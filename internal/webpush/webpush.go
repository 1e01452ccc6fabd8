// Package webpush sends messages to browsers through their push services: Web Push (RFC 8030), whose messages only the
// browser can read (RFC 8291, in the encoding of RFC 8188), from a sender that the service recognises by its key
// (VAPID, RFC 8292).
//
// A browser names the address to which its messages are sent, so an address is not to be believed: it must be https, and
// a message is never sent into a private network.
//
// The code is ours because the libraries give no way to set the salt and the key of a message, so that the test vectors of
// the RFCs cannot be checked, and connect to any address.
package webpush

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// Subscription is where and how messages reach a browser, as PushSubscription.toJSON returns it.
type Subscription struct {
	Endpoint string `json:"endpoint"`
	Keys     Keys   `json:"keys"`
}

// Keys are the keys of a browser, in base64url without padding.
type Keys struct {
	P256DH string `json:"p256dh"` // its public key: an uncompressed point of P-256
	Auth   string `json:"auth"`   // a secret of 16 bytes
}

// Limits, in bytes.
const (
	maxEndpoint = 1000
	authLength  = 16
	saltLength  = 16
	pointLength = 65
	// MaxMessage is how long a message can be. Push services accept 4096 bytes (RFC 8030, section 7.2), of which the header
	// and the tag need 103 (RFC 8291, section 4).
	MaxMessage = 3993
)

var encoding = base64.RawURLEncoding.Strict()

func invalidSubscription(message string) error {
	return bailey.Invalid.New(message, "switch the notices off and on again on that device")
}

// Check returns an error of the kind Invalid if messages cannot, or must not, be sent to a subscription.
func (s Subscription) Check(anywhere bool) error {
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || len(s.Endpoint) > maxEndpoint || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		return invalidSubscription("the address of a push service is https:// with a host, and at most 1000 bytes long")
	case !anywhere && !isPublicHost(u):
		return invalidSubscription("the address of a push service is not that of a public host")
	}
	_, _, err = s.readKeys()
	return err
}

func (s Subscription) readKeys() (*ecdh.PublicKey, []byte, error) {
	point, err := encoding.DecodeString(s.Keys.P256DH)
	if err != nil || len(point) != pointLength {
		return nil, nil, invalidSubscription("the key p256dh of a subscription is base64url of 65 bytes")
	}
	key, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, nil, invalidSubscription("the key p256dh of a subscription is not a point of P-256")
	}
	auth, err := encoding.DecodeString(s.Keys.Auth)
	if err != nil || len(auth) != authLength {
		return nil, nil, invalidSubscription("the key auth of a subscription is base64url of 16 bytes")
	}
	return key, auth, nil
}

// isPublicHost reports whether the host of a URL can be public. A name is resolved when a message is sent.
func isPublicHost(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return IsPublic(addr)
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, notNumeric := strconv.Atoi(last) // 127.1 and 0x7f000001 are addresses to some resolvers
	return strings.Contains(host, ".") && notNumeric != nil && !strings.HasPrefix(last, "0x") && last != "localhost" &&
		last != "local" && last != "internal" && (u.Port() == "" || u.Port() == "443")
}

// encryptMessage writes a message that only the subscription's browser can read (RFC 8291, section 3.4, and RFC 8188, section 2):
// one record, whose header has the sender's public key.
func (s Subscription) encryptMessage(message []byte, sender *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	browser, auth, err := s.readKeys()
	if err != nil {
		return nil, err
	}
	if len(message) > MaxMessage {
		return nil, bailey.Invalid.Errorf("", "a message has at most %d bytes", MaxMessage)
	}
	shared, err := sender.ECDH(browser)
	if err != nil {
		return nil, err
	}
	info := "WebPush: info\x00" + string(browser.Bytes()) + string(sender.PublicKey().Bytes())
	ikm, err := hkdf.Key(sha256.New, shared, auth, info, sha256.Size)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	const recordSize = 4096
	out := binary.BigEndian.AppendUint32(bytes.Clone(salt), recordSize)
	out = append(out, pointLength)
	out = append(out, sender.PublicKey().Bytes()...)
	const lastRecord = 2 // the delimiter of the last record
	return aead.Seal(out, nonce, append(bytes.Clone(message), lastRecord), nil), nil
}

// Key is the key of a sender. Browsers bind a subscription to its public part.
type Key struct{ private *ecdsa.PrivateKey }

// NewKey makes a key.
func NewKey() (Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return Key{private}, err
}

// ParseKey reads the text of a key.
func ParseKey(text string) (Key, error) {
	raw, err := encoding.DecodeString(text)
	if err != nil {
		return Key{}, bailey.Invalid.New("the key of web push is not base64url", "")
	}
	private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return Key{}, bailey.Invalid.New("the key of web push is not one of P-256", "")
	}
	return Key{private}, nil
}

// Text returns the private key in base64url.
func (k Key) Text() (string, error) {
	raw, err := k.private.Bytes()
	return encoding.EncodeToString(raw), err
}

// Public returns the public key as browsers want it: an uncompressed point in base64url.
func (k Key) Public() (string, error) {
	raw, err := k.private.PublicKey.Bytes()
	return encoding.EncodeToString(raw), err
}

// tokenLife is how long a token is valid; RFC 8292, section 2, permits 24 hours.
const tokenLife = 12 * time.Hour

// authorizeSend returns the value of the header Authorization for an endpoint (RFC 8292, section 3). contact is a URL under
// which the operator of a push service finds the sender.
func (k Key) authorizeSend(endpoint, contact string, now time.Time) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		Subject  string `json:"sub"`
	}{u.Scheme + "://" + u.Host, now.Add(tokenLife).Unix(), contact})
	if err != nil {
		return "", err
	}
	signed := encoding.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + encoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, k.private, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte // RFC 7518, section 3.4
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	public, err := k.Public()
	return "vapid t=" + signed + "." + encoding.EncodeToString(signature[:]) + ", k=" + public, err
}

// Sender sends messages.
type Sender struct {
	Key     Key
	Contact string // a URL: https: or mailto:
	// HTTP is used to send. It must not follow redirects. If it is nil, messages go to public addresses only.
	HTTP *http.Client
	Now  func() time.Time // time.Now if it is nil
}

// ErrGone means that the browser has withdrawn its subscription, which is to be removed.
var ErrGone = errors.New("the subscription is gone")

// Send sends a message, which the push service keeps for the time ttl while the browser is away. It replaces one with the
// same topic that the browser has not got yet; topic has at most 32 characters of base64url. The error is ErrGone if
// there will never be an answer there, and otherwise Unavailable, Denied or Invalid.
func (s *Sender) Send(ctx context.Context, to Subscription, message []byte, topic string, ttl time.Duration) error {
	if err := to.Check(s.HTTP != nil); err != nil {
		return err
	}
	once, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	salt := make([]byte, saltLength)
	rand.Read(salt) // never fails (crypto/rand)
	body, err := to.encryptMessage(message, once, salt)
	if err != nil {
		return err
	}
	now := time.Now
	if s.Now != nil {
		now = s.Now
	}
	authorization, err := s.Key.authorizeSend(to.Endpoint, s.Contact, now())
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h := r.Header
	h.Set("Authorization", authorization)
	h.Set("Content-Encoding", "aes128gcm")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("TTL", strconv.Itoa(int(ttl.Seconds())))
	h.Set("Topic", topic)
	h.Set("Urgency", "high")
	client := s.HTTP
	if client == nil {
		client = publicClient()
	}
	resp, err := client.Do(r)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "the push service cannot be reached", "")
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 16<<10)) // so that the connection can be used again
	switch status := resp.StatusCode; {
	case status/100 == 2:
		return nil
	case status == http.StatusNotFound || status == http.StatusGone:
		return ErrGone
	case status == http.StatusTooManyRequests || status/100 == 5:
		return bailey.Unavailable.Errorf("", "the push service answers with status %d", status)
	default:
		return bailey.Denied.Errorf("", "the push service answers with status %d", status)
	}
}
