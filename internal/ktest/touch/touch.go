// Package touch simulates a security key, for tests of approvals by touch.
package touch

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
	"math/big"
	"net"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Card is a simulated security key. It signs according to OpenSSH's PROTOCOL.u2f, with the given flags.
type Card struct {
	Kind  string // one of Kinds
	Name  string // seed of the key: equal names must give equal keys
	Flags byte   // of each signature
}

// application is the application for which the key was created.
const application = "ssh:"

// Kinds are the key types of security keys.
var Kinds = []string{ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256}

// signingKey is derived from Kind and Name.
func (c Card) signingKey() crypto.Signer {
	seed := sha256.Sum256([]byte(c.Kind + " " + c.Name))
	if c.Kind == ssh.KeyAlgoSKED25519 {
		return ed25519.NewKeyFromSeed(seed[:])
	}
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed[:])
	if err != nil {
		panic(err) // only if the seed is invalid, about 1 in 4 billion
	}
	return k
}

// Blob returns the public key.
func (c Card) Blob() []byte {
	switch pub := c.signingKey().Public().(type) {
	case ed25519.PublicKey:
		return ssh.Marshal(struct{ Kind, Key, Application string }{c.Kind, string(pub), application})
	case *ecdsa.PublicKey:
		point, _ := pub.Bytes()
		return ssh.Marshal(struct{ Kind, Curve, Key, Application string }{c.Kind, "nistp256", string(point),
			application})
	}
	return nil
}

// Line returns the public key in the format of a .pub file.
func (c Card) Line() string { return c.Kind + " " + base64.StdEncoding.EncodeToString(c.Blob()) }

// Assert signs data. rest follows the signature of such a key: flags and a counter.
func (c Card) Assert(data []byte) (sig, rest []byte) {
	where, what := sha256.Sum256([]byte(application)), sha256.Sum256(data)
	rest = binary.BigEndian.AppendUint32([]byte{c.Flags}, 7)
	signed := slices.Concat(where[:], rest, what[:])
	switch k := c.signingKey().(type) {
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

// List, Sign and the other methods implement an ssh-agent that holds only this card.
func (c Card) List() ([]*agent.Key, error) {
	return []*agent.Key{{Format: c.Kind, Blob: c.Blob(), Comment: c.Name}}, nil
}

func (c Card) Sign(_ ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	sig, rest := c.Assert(data)
	return &ssh.Signature{Format: c.Kind, Blob: sig, Rest: rest}, nil
}

var errCard = errors.New("a card holds one key")

func (Card) Add(agent.AddedKey) error       { return errCard }
func (Card) Remove(ssh.PublicKey) error     { return errCard }
func (Card) RemoveAll() error               { return errCard }
func (Card) Lock([]byte) error              { return errCard }
func (Card) Unlock([]byte) error            { return errCard }
func (Card) Signers() ([]ssh.Signer, error) { return nil, errCard }

// Serve answers connections until the listener is closed.
func (c Card) Serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { agent.ServeAgent(c, conn); conn.Close() }()
	}
}
