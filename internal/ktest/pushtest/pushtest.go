// Package pushtest is a push service with a browser behind it for tests. It verifies the sender of a message (VAPID, RFC
// 8292) and decrypts it (RFC 8291) by code of its own.
package pushtest

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Service is a push service with one browser for each subscription.
type Service struct {
	*httptest.Server
	// Messages has each message that was verified and decrypted, and Faults why another one was refused.
	Messages chan Message
	Faults   chan error

	mu       sync.Mutex
	browsers map[string]*browser // by path
	status   int                 // of each answer, or 0
}

// Message is a message that a browser got.
type Message struct {
	Path, Text, Topic, TTL, Subject string
}

type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
	from string // the only sender, in base64url
}

// New starts a service, which ends with the test.
func New(t testing.TB) *Service {
	s := &Service{Messages: make(chan Message, 100), Faults: make(chan error, 100), browsers: map[string]*browser{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

// Subscribe returns the endpoint and the keys of a new browser, which accepts messages of the sender with this public key.
func (s *Service) Subscribe(t testing.TB, from string) (endpoint, p256dh, auth string) {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{key, make([]byte, 16), from}
	rand.Read(b.auth)
	s.mu.Lock()
	defer s.mu.Unlock()
	path := fmt.Sprintf("/push/%d", len(s.browsers))
	s.browsers[path] = b
	return s.URL + path, encodeKey(key.PublicKey().Bytes()), encodeKey(b.auth)
}

// AnswerWith makes the service answer each message with a status.
func (s *Service) AnswerWith(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func encodeKey(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	b, status := s.browsers[r.URL.Path], s.status
	s.mu.Unlock()
	if b == nil || status != 0 {
		w.WriteHeader(cmp.Or(status, http.StatusNotFound))
		return
	}
	m, err := b.receiveMessage(r, s.URL)
	if err != nil {
		s.Faults <- err
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	s.Messages <- m
	w.WriteHeader(http.StatusCreated)
}

func (b *browser) receiveMessage(r *http.Request, origin string) (m Message, err error) {
	if m.Subject, err = b.verifyToken(r.Header.Get("Authorization"), origin); err != nil {
		return m, err
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4097))
	if err != nil || len(body) > 4096 || r.Header.Get("Content-Encoding") != "aes128gcm" {
		return m, errors.New("not a message in aes128gcm of at most 4096 bytes")
	}
	text, err := b.decryptMessage(body)
	m.Path, m.Text, m.Topic, m.TTL = r.URL.Path, string(text), r.Header.Get("Topic"), r.Header.Get("TTL")
	return m, err
}

// verifyToken checks a header as RFC 8292, sections 2 and 3, say.
func (b *browser) verifyToken(header, origin string) (subject string, err error) {
	rest, ok := strings.CutPrefix(header, "vapid ")
	parts := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		parts[name] = value
	}
	token := strings.Split(parts["t"], ".")
	point, err := base64.RawURLEncoding.DecodeString(parts["k"])
	if !ok || len(token) != 3 || err != nil || parts["k"] != b.from {
		return "", errors.New("not the header of the sender that the browser named")
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return "", err
	}
	var raw [3][]byte
	for i := range token {
		if raw[i], err = base64.RawURLEncoding.DecodeString(token[i]); err != nil {
			return "", err
		}
	}
	var head struct{ Typ, Alg string }
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	if err := errors.Join(json.Unmarshal(raw[0], &head), json.Unmarshal(raw[1], &claims)); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(token[0] + "." + token[1]))
	if head.Alg != "ES256" || len(raw[2]) != 64 || !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(raw[2][:32]),
		new(big.Int).SetBytes(raw[2][32:])) {
		return "", errors.New("the signature of the token is not valid")
	}
	left := time.Until(time.Unix(claims.Exp, 0))
	if claims.Aud != origin || left <= 0 || left > 24*time.Hour || claims.Sub == "" {
		return "", fmt.Errorf("the token is for %q, ends in %v, and is of %q", claims.Aud, left, claims.Sub)
	}
	return claims.Sub, nil
}

// decryptMessage reads a message as RFC 8188, section 2, and RFC 8291, section 3.4, say.
func (b *browser) decryptMessage(body []byte) ([]byte, error) {
	if len(body) < 21+65+17 || body[20] != 65 || int(binary.BigEndian.Uint32(body[16:20])) < len(body)-86 {
		return nil, errors.New("the header of the message is not valid")
	}
	salt, point, sealed := body[:16], body[21:86], body[86:]
	sender, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		return nil, err
	}
	shared, err := b.key.ECDH(sender)
	if err != nil {
		return nil, err
	}
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			io.WriteString(h, p)
		}
		return h.Sum(nil)
	}
	prk := mac(b.auth, string(shared))
	ikm := mac(prk, "WebPush: info\x00", string(b.key.PublicKey().Bytes()), string(point), "\x01")
	prk = mac(salt, string(ikm))
	block, err := aes.NewCipher(mac(prk, "Content-Encoding: aes128gcm\x00\x01")[:16])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	padded, err := aead.Open(nil, mac(prk, "Content-Encoding: nonce\x00\x01")[:12], sealed, nil)
	if err != nil {
		return nil, err
	}
	text, last := strings.CutSuffix(strings.TrimRight(string(padded), "\x00"), "\x02")
	if !last {
		return nil, errors.New("the record is not the last one")
	}
	return []byte(text), nil
}
