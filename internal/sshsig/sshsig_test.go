package sshsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest"
)

// armour encodes raw as ssh-keygen does.
func armour(raw []byte) []byte {
	text := begin
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 70) {
		text += string(line) + "\n"
	}
	return []byte(text + end + "\n")
}

func line(name, kind string, blob []byte) string {
	return name + " " + kind + " " + base64.StdEncoding.EncodeToString(blob) + "\n"
}

// fresh returns an envelope without key and signature.
func fresh() *envelope {
	e := &envelope{Version: 1, Namespace: space, Hash: "sha512"}
	copy(e.Magic[:], magic)
	return e
}

// sealed returns an envelope that was signed by key after change was applied.
func sealed(t *testing.T, key ed25519.PrivateKey, message []byte, change func(*envelope)) []byte {
	t.Helper()
	pub, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	e := fresh()
	e.Key = pub.Marshal()
	change(e)
	e.Signature = slices.Concat(ssh.Marshal(struct {
		Format string
		Blob   []byte
	}{ssh.KeyAlgoED25519, ed25519.Sign(key, e.signedData(message))}), e.Signature)
	return ssh.Marshal(e)
}

func software() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)) }

func trusted(t *testing.T) []Key {
	t.Helper()
	pub, err := ssh.NewPublicKey(software().Public())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys([]byte(line("ann", ssh.KeyAlgoED25519, pub.Marshal())))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func same(*envelope) {}

// TestRefusals checks that any other form is refused, and that the error says why.
func TestRefusals(t *testing.T) {
	keys, message := trusted(t), []byte("text")
	good := sealed(t, software(), message, same)
	if by, err := Verify(message, armour(good), space, keys); err != nil || by.Name != "ann" {
		t.Fatalf("%+v %v", by, err)
	}
	with := func(change func(*envelope)) []byte { return armour(sealed(t, software(), message, change)) }
	text := string(armour(good))
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32))
	for _, c := range []struct {
		what    string
		armored []byte
		kind    bailey.Kind
		says    string
	}{
		{"nothing", nil, bailey.Invalid, "does not begin"},
		{"junk before", []byte("x\n" + text), bailey.Invalid, "does not begin"},
		{"an empty line before", []byte("\n" + text), bailey.Invalid, "does not begin"},
		{"junk behind", []byte(text + "x"), bailey.Invalid, "does not end"},
		{"two newlines behind", []byte(text + "\n"), bailey.Invalid, "does not end"},
		{"two signatures", []byte(text + text), bailey.Invalid, "not base64"},
		{"carriage returns", []byte(strings.ReplaceAll(text, "\n", "\r\n")), bailey.Invalid, "does not begin"},
		{"a carriage return inside", []byte(strings.Replace(text, "\nU", "\nU\r", 1)), bailey.Invalid, "carriage return"},
		{"an empty line inside", []byte(strings.Replace(text, "\nU", "\n\nU", 1)), bailey.Invalid, "empty"},
		{"one long line", []byte(begin + base64.StdEncoding.EncodeToString(good) + "\n" + end), bailey.Invalid, "too long"},
		{"no lines", []byte(begin + end), bailey.Invalid, "does not end"},
		{"huge", []byte(begin + strings.Repeat("A", maxSignature) + "\n" + end), bailey.Invalid, "at most"},
		{"other magic", armour(append([]byte("SSHSIH"), good[6:]...)), bailey.Invalid, "SSHSIG"},
		{"truncated", armour(good[:len(good)-1]), bailey.Invalid, "truncated"},
		{"trailing bytes", armour(append(bytes.Clone(good), 0)), bailey.Invalid, "followed by other bytes"},
		{"version 0", with(func(e *envelope) { e.Version = 0 }), bailey.Invalid, "version 0"},
		{"version 2", with(func(e *envelope) { e.Version = 2 }), bailey.Invalid, "version 2"},
		{"another namespace", with(func(e *envelope) { e.Namespace = "file" }), bailey.Denied, `namespace "file"`},
		{"no namespace", with(func(e *envelope) { e.Namespace = "" }), bailey.Invalid, "no namespace"},
		{"a reserved field", with(func(e *envelope) { e.Reserved = "x" }), bailey.Invalid, "reserved"},
		{"SHA-1", with(func(e *envelope) { e.Hash = "sha1" }), bailey.Invalid, `"sha1"`},
		{"SHA-384", with(func(e *envelope) { e.Hash = "sha384" }), bailey.Invalid, `"sha384"`},
		{"bytes behind the signature", with(func(e *envelope) { e.Signature = []byte{1} }), bailey.Invalid, "follow the inner signature"},
		{"flags of a key that has none", with(func(e *envelope) { e.Signature = []byte{1, 0, 0, 0, 1} }), bailey.Invalid, "follow the inner signature"},
		{"another key", armour(sealed(t, other, message, same)), bailey.Denied, "not among"},
		{"another key under a trusted one's name", armour(sealed(t, other, message, func(e *envelope) { e.Key = keys[0].blob })), bailey.Denied, "is not that of key"},
		{"another message", armour(sealed(t, software(), []byte("texT"), same)), bailey.Denied, "is not that of key"},
	} {
		by, err := Verify(message, c.armored, space, keys)
		if bailey.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || by != (Signer{}) {
			t.Errorf("%s: %+v, %v", c.what, by, err)
		}
	}
	if _, err := Verify(message, armour(good), space, []Key{{}}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("the zero Key: %v", err)
	}
	if _, err := Verify(message, with(func(e *envelope) { e.Namespace = "" }), "", keys); err == nil {
		t.Error("no namespace was asked for and one was verified")
	}
}

// TestRSA checks that SHA-1 is refused. A signature shorter than its key must be refused too, although the library
// would accept it.
func TestRSA(t *testing.T) {
	ktest.Long(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys([]byte(line("ann", ssh.KeyAlgoRSA, signer.PublicKey().Marshal())))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(format string, message []byte, change func(*ssh.Signature)) error {
		e := fresh()
		e.Key = signer.PublicKey().Marshal()
		sig, err := signer.(ssh.AlgorithmSigner).SignWithAlgorithm(rand.Reader, e.signedData(message), format)
		if err != nil {
			t.Fatal(err)
		}
		change(sig)
		e.Signature = ssh.Marshal(sig)
		_, err = Verify(message, armour(ssh.Marshal(e)), space, keys)
		return err
	}
	asIs := func(*ssh.Signature) {}
	for _, format := range []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256} {
		if err := sign(format, []byte("text"), asIs); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	if err := sign(ssh.KeyAlgoRSA, []byte("text"), asIs); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), `the signature has type "ssh-rsa"`) {
		t.Errorf("SHA-1: %v", err)
	}
	for n, found := 0, false; !found; n++ { // one in 256 signatures begins with a zero
		err := sign(ssh.KeyAlgoRSASHA512, fmt.Append(nil, n), func(sig *ssh.Signature) {
			if found = sig.Blob[0] == 0; found {
				sig.Blob = sig.Blob[1:]
			}
		})
		if found && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "canonical form")) {
			t.Errorf("a short signature: %v", err)
		}
	}
}

// card signs like a security key, in software (PROTOCOL.u2f).
type card struct {
	kind string
	blob []byte
	sign func([]byte) []byte
}

func cards(t *testing.T) []card {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := private.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return []card{
		{ssh.KeyAlgoSKED25519, ssh.Marshal(struct {
			Type             string
			Key, Application []byte
		}{ssh.KeyAlgoSKED25519, software().Public().(ed25519.PublicKey), []byte("ssh:")}),
			func(b []byte) []byte { return ed25519.Sign(software(), b) }},
		{ssh.KeyAlgoSKECDSA256, ssh.Marshal(struct {
			Type, Curve      string
			Key, Application []byte
		}{ssh.KeyAlgoSKECDSA256, "nistp256", point, []byte("ssh:")}),
			func(b []byte) []byte {
				sum := sha256.Sum256(b)
				r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
				if err != nil {
					t.Fatal(err)
				}
				return ssh.Marshal(struct{ R, S *big.Int }{r, s})
			}},
	}
}

// touched returns the card's signature of message for an application, with these flags.
func (c card) touched(app string, message []byte, flags byte) []byte {
	e := fresh()
	e.Key = c.blob
	where, what := sha256.Sum256([]byte(app)), sha256.Sum256(e.signedData(message))
	e.Signature = ssh.Marshal(struct {
		Format  string
		Blob    []byte
		Flags   byte
		Counter uint32
	}{c.kind, c.sign(slices.Concat(where[:], []byte{flags, 0, 0, 0, 9}, what[:])), flags, 9})
	return armour(ssh.Marshal(e))
}

// TestTouch checks that only the lowest bit of the signed flags means that a person was present.
func TestTouch(t *testing.T) {
	message := []byte("text")
	for _, c := range cards(t) {
		keys, err := ParseKeys([]byte(line("ann", c.kind, c.blob)))
		if err != nil || !keys[0].Hardware() {
			t.Fatal(keys, err)
		}
		for flags, touch := range map[byte]bool{0x00: false, 0x01: true, 0x04: false, 0x05: true} {
			by, err := Verify(message, c.touched("ssh:", message, flags), space, keys)
			if err != nil || by.Touch != touch || by.Name != "ann" {
				t.Errorf("%s with flags %#x: %+v %v", c.kind, flags, by, err)
			}
		}
		if _, err := Verify(message, c.touched("ssh:x", message, 1), space, keys); bailey.KindOf(err) != bailey.Denied {
			t.Errorf("%s for another application: %v", c.kind, err)
		}
		raw, err := decodeArmor(c.touched("ssh:", message, 0))
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			changed := bytes.Clone(raw)
			changed[i] ^= 1
			if by, err := Verify(message, armour(changed), space, keys); err == nil {
				t.Errorf("%s, byte %d changed: %+v", c.kind, i, by)
			}
		}
		if _, err := Verify(message, armour(raw[:len(raw)-1]), space, keys); err == nil {
			t.Errorf("%s: a counter cut short", c.kind)
		}
	}
}

// TestKeygenReadsCards checks that ssh-keygen verifies the signatures of the cards in these tests.
func TestKeygenReadsCards(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	for _, c := range cards(t) {
		dir := t.TempDir()
		put(t, dir, "allowed", []byte(line("ann", c.kind, c.blob)))
		if !agree(t, dir, []byte("text"), c.touched("ssh:", []byte("text"), 1)) {
			t.Errorf("ssh-keygen does not verify the card of type %s", c.kind)
		}
		if agree(t, dir, []byte("text"), c.touched("ssh:x", []byte("text"), 1)) {
			t.Errorf("ssh-keygen verifies the card of type %s for another application", c.kind)
		}
	}
}

// TestSign checks that a signature is in the form that Verify accepts, and that the signature of an agent is refused if it
// is by another key or over other data.
func TestSign(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	mine, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, _ := ed25519.GenerateKey(rand.Reader)
	other, _ := ssh.NewSignerFromKey(foreign)
	keys, err := ParseKeys([]byte(line("ann", ssh.KeyAlgoED25519, mine.PublicKey().Marshal())))
	if err != nil {
		t.Fatal(err)
	}
	sign := func(data []byte) (*ssh.Signature, error) { return mine.Sign(rand.Reader, data) }
	armored, err := Sign([]byte("text"), space, mine.PublicKey(), sign)
	if err != nil {
		t.Fatal(err)
	}
	if by, err := Verify([]byte("text"), armored, space, keys); err != nil || by.Name != "ann" {
		t.Errorf("%+v %v", by, err)
	}
	for name, bad := range map[string]func([]byte) (*ssh.Signature, error){
		"another key": func(data []byte) (*ssh.Signature, error) { return other.Sign(rand.Reader, data) },
		"other data":  func(data []byte) (*ssh.Signature, error) { return mine.Sign(rand.Reader, data[1:]) },
		"nothing":     func([]byte) (*ssh.Signature, error) { return &ssh.Signature{}, nil },
		"an error":    func([]byte) (*ssh.Signature, error) { return nil, errors.New("locked") },
	} {
		if armored, err := Sign([]byte("text"), space, mine.PublicKey(), bad); err == nil || armored != nil {
			t.Errorf("%s: %q", name, armored)
		}
	}
}
