package sshsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"bailey"
)

func public(t *testing.T, key any) []byte {
	t.Helper()
	pub, err := ssh.NewPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pub.Marshal()
}

// TestParseKeys checks that a line has only one form, and that no key is accepted by mistake.
func TestParseKeys(t *testing.T) {
	ed := public(t, software().Public())
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := line("ann@example.org", ssh.KeyAlgoED25519, ed)
	b64 := base64.StdEncoding.EncodeToString(ed)
	for _, c := range []struct{ list, says string }{
		{"", ""},
		{"\n  \n# nobody\n\t# here\n", ""},
		{good, ""},
		{strings.TrimSuffix(good, "\n") + " a comment of words", ""},
		{"ann\tssh-ed25519\t" + b64, ""},
		{good + good, "line 2 of the list of keys: the key is the same as in line 1"},
		{good + line("bob", ssh.KeyAlgoED25519, ed), "same as in line 1"},
		{"ann", "needs a name"},
		{"ann ssh-ed25519", "needs a name"},
		{"ssh-ed25519 " + b64 + " ann", "is not one of the types"},
		{"* ssh-ed25519 " + b64, "without patterns"},
		{"ann,bob ssh-ed25519 " + b64, "is not a name"},
		{"!ann ssh-ed25519 " + b64, "is not a name"},
		{"-ann ssh-ed25519 " + b64, "is not a name"},
		{`"ann" ssh-ed25519 ` + b64, "is not a name"},
		{strings.Repeat("a", maxName+1) + " ssh-ed25519 " + b64, "is not a name"},
		{`ann namespaces="git" ssh-ed25519 ` + b64, "options are not supported"},
		{"ann cert-authority ssh-ed25519 " + b64, "options are not supported"},
		{"ann ssh-rsa " + b64, "of another type"},
		{"ann ssh-dss " + b64, "is not one of the types"},
		{"ann ssh-ed25519 " + b64[:len(b64)-4], "no public key"},
		{"ann ssh-ed25519 !" + b64, "not base64"},
		{"ann ssh-ed25519 " + base64.StdEncoding.EncodeToString(append(bytes.Clone(ed), 0)), "no public key"},
		{"ann ssh-ed25519 " + b64 + "\r\n", "control character"},
		{"ann\x00 ssh-ed25519 " + b64, "control character"},
		{line("ann", ssh.KeyAlgoRSA, public(t, &small.PublicKey)), "2048"},
		{line("ann", ssh.KeyAlgoECDSA384, public(t, &wide.PublicKey)), "is not one of the types"},
		{strings.Repeat("#\n", maxList), "at most"},
	} {
		keys, err := ParseKeys([]byte(c.list))
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%.60q: %v", c.list, err)
		case c.says == "" && strings.Contains(c.list, b64) && (len(keys) != 1 || !bytes.Equal(keys[0].blob, ed)):
			t.Errorf("%.60q: %+v", c.list, keys)
		case c.says != "" && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), c.says) || keys != nil):
			t.Errorf("%.60q: %v %v, want %q", c.list, keys, err, c.says)
		}
	}
}

// FuzzVerify checks that no input causes a panic, and that a text that is read as an envelope has one encoding.
func FuzzVerify(f *testing.F) {
	blob := ssh.Marshal(struct {
		Type string
		Key  []byte
	}{ssh.KeyAlgoED25519, bytes.Repeat([]byte{1}, 32)})
	e := fresh()
	e.Key, e.Signature = blob, ssh.Marshal(ssh.Signature{Format: ssh.KeyAlgoED25519, Blob: make([]byte, 64)})
	f.Add(armour(ssh.Marshal(e)), []byte(line("ann", ssh.KeyAlgoED25519, blob)))
	f.Add([]byte(begin+"AAAA\n"+end), []byte("ann sk-ssh-ed25519@openssh.com AAAA"))
	f.Fuzz(func(t *testing.T, armored, list []byte) {
		keys, err := ParseKeys(list)
		if err == nil {
			for _, k := range keys {
				if k.Name == "" || k.plain == nil || len(k.blob) == 0 {
					t.Errorf("%q: %+v", list, k)
				}
			}
		}
		if raw, err := decodeArmor(armored); err == nil {
			if e, err := parseEnvelope(armored); err == nil && !bytes.Equal(ssh.Marshal(e), raw) {
				t.Errorf("%q reads as %+v", armored, e)
			}
		}
		if by, err := Verify([]byte("text"), armored, space, keys); err == nil && by.Name == "" {
			t.Errorf("%q by nobody", armored)
		}
	})
}
