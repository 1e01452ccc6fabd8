package audit

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// TestKeysOfOthers checks that the package reads the verifier key and the note from the documentation of
// golang.org/x/mod.
func TestKeysOfOthers(t *testing.T) {
	const vkey = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
	const signed = "If you think cryptography is the answer to your problem,\n" +
		"then you don't know what your problem is.\n\n" +
		"— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
	k, err := ParseKey(vkey)
	do(t, err)
	if _, err := openNote([]byte(signed), Trust{Keys: []Key{k}}); err != nil {
		t.Error(err)
	}
	// x/mod must read a note of this package, too.
	b := day(t, 1)
	v, err := note.NewVerifier(b.key(1).String())
	do(t, err)
	if n, err := note.Open(b.cosign(b.sign(5, 1), 1), note.VerifierList(v)); err != nil || n.Text != b.roots[5].Text() || len(n.UnverifiedSigs) != 1 {
		t.Errorf("%+v %v", n, err)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	b := day(t, 1)
	good := b.key(1).String()
	if k, err := ParseKey(good); err != nil || k != b.key(1) {
		t.Fatal(k, err)
	}
	for _, bad := range []string{
		"", "+", "++", "a+b+c", good + " ", good + "\n", " " + good, strings.ToUpper(good), good[:len(good)-1],
		strings.Replace(good, "+", "+0", 1), strings.Replace(good, "castle", "palace", 1),
		good + "AAAA", strings.Repeat("x", 600) + good, "\x00" + good, "\u00a0" + good, "\xff" + good,
	} {
		if k, err := ParseKey(bad); err == nil {
			t.Errorf("%q is the key %v", bad, k)
		}
	}
	if (Key{}).Verify([]byte("x"), make([]byte, 64)) || (Key{}).Verify(nil, nil) {
		t.Error("the zero key verifies something")
	}
}

func TestKeysRefuse(t *testing.T) {
	if _, err := LogKey("two words", private(1).Public().(ed25519.PublicKey)); err == nil {
		t.Error("a name with a space")
	}
	for name, public := range map[string]ed25519.PublicKey{"none": nil, "short": ed25519.PublicKey("short")} {
		if _, err := LogKey("log", public); err == nil {
			t.Errorf("a key: %s", name)
		}
	}
}

// TestCheckpointOfOthers checks the example of a checkpoint from the C2SP specification.
func TestCheckpointOfOthers(t *testing.T) {
	const text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
	c, err := ParseCheckpoint(text)
	if err != nil || c.Origin != "example.com/behind-the-sofa" || c.Size != 20852163 || !strings.HasPrefix(c.Root.String(), "0ac5186a91863e8e") {
		t.Errorf("%+v %v", c, err)
	}
	for name, bad := range map[string]string{
		"no newline":   text[:len(text)-1],
		"an extension": text + "more\n",
		"empty origin": text[len("example.com/behind-the-sofa"):],
		"leading zero": strings.Replace(text, "\n2", "\n02", 1),
		"plus":         strings.Replace(text, "\n2", "\n+2", 1),
		"negative":     strings.Replace(text, "\n2", "\n-2", 1),
		"too large":    strings.Replace(text, "\n20852163", "\n2305843009213693953", 1),
		"short root":   strings.Replace(text, "CsUY", "", 1),
		"loose base64": strings.Replace(text, "q2I=", "q2J=", 1),
		"url base64":   strings.Replace(text, "/Xajj", "_Xajj", 1),
		"space":        strings.Replace(text, "behind-", "behind ", 1),
		"carriage":     strings.ReplaceAll(text, "\n", "\r\n"),
	} {
		if c, err := ParseCheckpoint(bad); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
