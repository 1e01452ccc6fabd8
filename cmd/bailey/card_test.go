//go:build linux

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/wire"
)

// card is a security key in software: it signs as PROTOCOL.u2f of OpenSSH has it, with the flags it is told.
type card struct {
	kind  string
	name  string
	flags byte
}

// cardKinds are the types of keys that live in a security key.
var cardKinds = []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256}

// key is made of the card's name, so that two scripts have it alike.
func (c card) key() crypto.Signer {
	seed := sha256.Sum256([]byte(c.kind + " " + c.name))
	if c.kind == ssh.KeyAlgoSKED25519 {
		return ed25519.NewKeyFromSeed(seed[:])
	}
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed[:])
	if err != nil {
		panic(err) // one seed in four thousand million
	}
	return k
}

// blob is the public key.
func (c card) blob() []byte {
	switch pub := c.key().Public().(type) {
	case ed25519.PublicKey:
		return fields(c.kind, string(pub), "ssh:")
	case *ecdsa.PublicKey:
		point, _ := pub.Bytes()
		return fields(c.kind, "nistp256", string(point), "ssh:")
	}
	return nil
}

// line is the public key as a .pub file has it.
func (c card) line() string { return c.kind + " " + base64.StdEncoding.EncodeToString(c.blob()) }

// assert signs data, with what follows a signature of such a key: flags and a counter.
func (c card) assert(data []byte) (sig, rest []byte) {
	where, what := sha256.Sum256([]byte("ssh:")), sha256.Sum256(data)
	rest = binary.BigEndian.AppendUint32([]byte{c.flags}, 7)
	signed := slices.Concat(where[:], rest, what[:])
	switch k := c.key().(type) {
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, signed)
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256(signed)
		r, s, err := ecdsa.Sign(rand.Reader, k, sum[:])
		if err != nil {
			return nil, nil
		}
		sig = ssh.Marshal(struct{ R, S *big.Int }{r, s})
	}
	return sig, rest
}

// List, Sign and the rest are an ssh-agent that holds the card alone.
func (c card) List() ([]*agent.Key, error) {
	return []*agent.Key{{Format: c.kind, Blob: c.blob(), Comment: c.name}}, nil
}

func (c card) Sign(_ ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	sig, rest := c.assert(data)
	return &ssh.Signature{Format: c.kind, Blob: sig, Rest: rest}, nil
}

var errCard = errors.New("a card holds one key")

func (card) Add(agent.AddedKey) error       { return errCard }
func (card) Remove(ssh.PublicKey) error     { return errCard }
func (card) RemoveAll() error               { return errCard }
func (card) Lock([]byte) error              { return errCard }
func (card) Unlock([]byte) error            { return errCard }
func (card) Signers() ([]ssh.Signer, error) { return nil, errCard }

// serve answers on a socket until the listener is closed.
func (c card) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { agent.ServeAgent(c, conn); conn.Close() }()
	}
}

// card KIND NAME FLAGS puts a security key in: NAME.pub is its public key, and ssh-agent holds it from now on.
func insertCard(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 || !slices.Contains(cardKinds, args[0]) {
		ts.Fatalf("usage: card KIND NAME FLAGS")
	}
	flags, err := strconv.ParseUint(args[2], 0, 8)
	ts.Check(err)
	c := card{args[0], args[1], byte(flags)}
	ts.Check(os.WriteFile(ts.MkAbs(c.name+".pub"), []byte(c.line()+" "+c.name+"\n"), 0o600))
	dir, err := os.MkdirTemp("", "card") // the address of a socket is short
	ts.Check(err)
	l, err := net.Listen("unix", filepath.Join(dir, "agent"))
	ts.Check(err)
	ts.Defer(func() { l.Close(); os.RemoveAll(dir) })
	go c.serve(l)
	ts.Setenv("SSH_AUTH_SOCK", filepath.Join(dir, "agent"))
}

// sign is what ssh-keygen -Y sign makes with the card.
func (c card) sign(text, namespace string) string {
	return enveloped(c.blob(), text, namespace, func(data []byte) []byte {
		sig, rest := c.assert(data)
		return append(fields(c.kind, string(sig)), rest...)
	})
}

// trusted applies settings that name these cards' holders, each with the role sre.
func (a asking) trusted(t *testing.T, list ...card) {
	t.Helper()
	text := "approvers:\n"
	for _, c := range list {
		text += fmt.Sprintf("  - name: %s\n    key: %s\n    roles: [sre]\n", c.name, c.line())
	}
	if _, err := a.desk.settings.Apply(t.Context(), a.desk.settings.Digest(), []byte(text), gateway.Applied{Operator: wire.Env}); err != nil {
		t.Fatal(err)
	}
}

const touchAsks = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("level=signed-touch,count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

// TestOnlyATouch: where a rule wants a touched key, nothing less is taken, whoever it comes from: no word of an operator,
// no signature by a file, and none of a security key that nobody touched.
func TestOnlyATouch(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for _, kind := range cardKinds {
		t.Run(kind, func(t *testing.T) {
			a := askingFor(t, touchAsks)
			q, done := a.waiting(t, nil)
			refused := func(what, signature string) {
				t.Helper()
				if got, err := a.answer(t, q, signature); !errors.Is(err, bailey.Denied) || got.Granted || bailey.HintOf(err) == "" {
					t.Errorf("%s: %+v, %v", what, got, err)
				}
			}
			refused("an operator's word", "")
			ada, bob, eve := card{kind, "ada", 1}, newHolder("bob", "sre"), card{kind, "ada", 0}
			a.trust(t, bob)
			refused("a key in a file", bob.sign(q.Text, canon.Namespace))
			a.trusted(t, ada)
			refused("no signature", "")
			refused("an untouched key", eve.sign(q.Text, canon.Namespace))
			eve.flags = 4 // a PIN was given, and nobody was present
			refused("a key that verified somebody and saw nobody", eve.sign(q.Text, canon.Namespace))
			refused("another's key", card{kind, "mallory", 1}.sign(q.Text, canon.Namespace))
			refused("for another end", ada.sign(q.Text, "git"))
			if got, err := a.answer(t, q, ada.sign(q.Text, canon.Namespace)); err != nil || !got.Granted {
				t.Fatalf("%+v, %v", got, err)
			}
			if r := <-done; r.Status != bailey.OK || !r.Executed {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestUntouchedIsSoftware: a security key that nobody touched shows no more than a key in a file, as ssh-keygen -Y verify
// takes it too.
func TestUntouchedIsSoftware(t *testing.T) {
	for _, kind := range cardKinds {
		for level, taken := range map[bailey.Level]map[byte]bool{
			bailey.SignedSoftware: {0: true, 1: true, 4: true, 5: true}, bailey.SignedTouch: {0: false, 1: true, 4: false, 5: true},
		} {
			for flags, want := range taken {
				c := card{kind, "ada", flags}
				by, err := proven([]byte("text"), approve.Given{Question: "a-1", Grant: true, Signature: c.sign("text", canon.Namespace)}, []gateway.Approver{{Name: "ada", Key: c.line()}})
				if err != nil || by.Level.Meets(level) != want {
					t.Errorf("%s with flags %#x for %s: %+v, %v", kind, flags, level, by, err)
				}
			}
		}
	}
}
