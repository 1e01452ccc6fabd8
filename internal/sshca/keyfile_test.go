package sshca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest"
)

// privateDir returns a new directory of mode 0700.
func privateDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != want {
		t.Errorf("%s: mode %v, want %v, %v", path, info.Mode(), want, err)
	}
}

func getFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func putFile(t testing.TB, path string, text []byte, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, text, mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "ssh_ca")
	key, err := GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := SaveKey(path, key); err != nil {
		t.Fatal(err)
	}
	wantMode(t, filepath.Dir(path), 0o700)
	wantMode(t, path, 0o600)
	wantMode(t, path+".pub", 0o644)
	got, err := LoadKey(path)
	if err != nil || !got.Equal(key) {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if got, err := LoadKey(path); err != nil || !got.Equal(key) {
		t.Fatal(err)
	}
	wantRefusal(t, SaveKey(path, testKey(1)), bailey.Conflict, "exists already")
	if got, err := LoadKey(path); err != nil || !got.Equal(key) {
		t.Error("the key was replaced")
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, SaveKey(path, testKey(1)), bailey.Conflict, "public half of another key")
	if err := SaveKey(path, key); err != nil {
		t.Errorf("a key is not saved beside its own public half: %v", err)
	}
	wantRefusal(t, SaveKey(path+"2", nil), bailey.Invalid, "wrong length")
}

// TestCreateKeepsExisting checks that a file which another process created in the meantime is kept, and that no copy of
// the unused key remains.
func TestCreateKeepsExisting(t *testing.T) {
	dir := privateDir(t)
	putFile(t, filepath.Join(dir, "ssh_ca"), []byte("first"), 0o600)
	d, err := openSecretDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	wantRefusal(t, d.createFile("ssh_ca", []byte("second"), secretMode), bailey.Conflict, "exists already")
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 || string(getFile(t, filepath.Join(dir, "ssh_ca"))) != "first" {
		t.Errorf("%v %v", list, err)
	}
}

// TestSavedKeyIsOpenSSH checks that ssh-keygen reads a saved key and has the same public half and fingerprint.
func TestSavedKeyIsOpenSSH(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	path := filepath.Join(privateDir(t), "ssh_ca")
	if err := SaveKey(path, testKey(1)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ssh-keygen", "-y", "-P", "", "-f", path).CombinedOutput()
	if err != nil || string(out) != string(getFile(t, path+".pub")) {
		t.Errorf("%v %s, want %s", err, out, getFile(t, path+".pub"))
	}
	out, err = exec.Command("ssh-keygen", "-l", "-f", path+".pub").CombinedOutput()
	want := ssh.FingerprintSHA256(publicOf(t, testKey(1).Public())) + " bailey-ca (ED25519)"
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v %s", err, out)
	}
}

// TestLoadRefusesAccess checks each condition on a key file and its directory.
func TestLoadRefusesAccess(t *testing.T) {
	good, err := formatPrivate(testKey(1), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind   bailey.Kind
		says   string
		change func(path string) error
	}{
		"missing":        {bailey.NotFound, "does not exist", os.Remove},
		"group may read": {bailey.Denied, "mode 0640, not 0600 or 0400", chmod(0o640)},
		"other may read": {bailey.Denied, "mode 0604", chmod(0o604)},
		"executable":     {bailey.Denied, "mode 0700", chmod(0o700)},
		"setuid":         {bailey.Denied, "mode 0600, not 0600 or 0400", chmod(0o600 | fs.ModeSetuid)},
		"open directory": {bailey.Denied, "mode 0750", func(p string) error { return os.Chmod(up(p, 1), 0o750) }},
		"too large":      {bailey.Invalid, "16384", func(p string) error { return os.Truncate(p, maxKeyFile+1) }},
		"link": {bailey.Denied, "is a symbolic link", func(p string) error {
			return errors.Join(os.Rename(p, p+"2"), os.Symlink("ssh_ca2", p))
		}},
		"directory": {bailey.Denied, "not a regular file", func(p string) error {
			return errors.Join(os.Remove(p), os.Mkdir(p, 0o600))
		}},
		"link directory": {bailey.Denied, "link, not a directory", linkDirectory},
	} {
		path := filepath.Join(privateDir(t), "ssh_ca")
		putFile(t, path, good, 0o600)
		if err := c.change(path); err != nil {
			t.Fatal(name, err)
		}
		key, err := LoadKey(path)
		if wantRefusal(t, err, c.kind, c.says); key != nil {
			t.Errorf("%s: a key was returned", name)
		}
	}
}

func chmod(mode fs.FileMode) func(string) error {
	return func(path string) error { return os.Chmod(path, mode) }
}

func linkDirectory(path string) error {
	dir := filepath.Dir(path)
	return errors.Join(os.Rename(dir, dir+"2"), os.Symlink("work2", dir))
}

// TestLoadRefusesOwner checks the owner, which only root can change.
func TestLoadRefusesOwner(t *testing.T) {
	ktest.Require(t, "root")
	path := filepath.Join(privateDir(t), "ssh_ca")
	if err := SaveKey(path, testKey(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	_, err := LoadKey(path)
	wantRefusal(t, err, bailey.Denied, "belongs to uid 12345")
	if err := errors.Join(os.Chown(path, 0, -1), os.Chown(filepath.Dir(path), 12345, -1)); err != nil {
		t.Fatal(err)
	}
	_, err = LoadKey(path)
	wantRefusal(t, err, bailey.Denied, "belongs to uid 12345")
}

// TestLoadRefusesContent checks that each damage has its own reason, and that no reason contains a part of the key.
func TestLoadRefusesContent(t *testing.T) {
	good, err := formatPrivate(testKey(1), "a comment")
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(other, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(testKey(1), "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	mixed := append(bytes.Clone(testKey(1)[:32]), testKey(2)[32:]...)
	swapped, err := formatPrivate(mixed, "")
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(good)
	damaged[60] = '!'
	for _, c := range []struct {
		text []byte
		says string
	}{
		{nil, "is empty"},
		{[]byte(" \n"), "is empty"},
		{make([]byte, len(good)), "not a private key in PEM format"}, // blocks that the file system never wrote
		{append([]byte("x"), good...), "not a private key in PEM format"},
		{damaged, "PEM format is wrong"},
		{append(bytes.Clone(good), good...), "more text than one key"},
		{append(bytes.Clone(good), 'x'), "more text than one key"},
		{append([]byte("-----BEGIN "+keyBlock+"-----\n"), good...), "more text than one key"},
		{pem.EncodeToMemory(block), "holds a *ecdsa.PrivateKey, not an Ed25519 key"},
		{pem.EncodeToMemory(locked), "encrypted with a passphrase"},
		{pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), `of type "PRIVATE KEY"`},
		{pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte("nothing")}), "is not a private key"},
		{swapped, "halves do not match|private half do not match|is not a private key"},
	} {
		path := filepath.Join(privateDir(t), "ssh_ca")
		putFile(t, path, c.text, 0o600)
		_, err := LoadKey(path)
		found := false
		for says := range strings.SplitSeq(c.says, "|") {
			found = found || err != nil && strings.Contains(err.Error(), says)
		}
		if bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" || !found {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.says)
		}
	}
}

// TestHalfWrittenKey checks that each beginning of a key file is refused with the reason.
func TestHalfWrittenKey(t *testing.T) {
	good, err := formatPrivate(testKey(1), "")
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(good)-1; n++ {
		if key, fault := parsePrivate(good[:n]); key != nil || !strings.HasPrefix(fault, "is cut short") {
			t.Fatalf("%d of %d bytes: %q", n, len(good), fault)
		}
	}
	path := filepath.Join(privateDir(t), "ssh_ca")
	putFile(t, path, good[:len(good)/2], 0o600)
	_, err = LoadKey(path)
	wantRefusal(t, err, bailey.Invalid, path+" is cut short: its last line is not complete")
}

// FuzzPrivateKey checks that no text causes a panic, and that an accepted key is whole.
func FuzzPrivateKey(f *testing.F) {
	good, err := formatPrivate(testKey(1), "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, fault := parsePrivate(text)
		if (key == nil) == (fault == "") {
			t.Fatalf("key %t, fault %q", key != nil, fault)
		}
		if key == nil {
			return
		}
		message := []byte("message")
		if !ed25519.Verify(key.Public().(ed25519.PublicKey), message, ed25519.Sign(key, message)) {
			t.Error("the halves do not match")
		}
		line, err := publicLine(key)
		if pub, ok := parsePublic(line); err != nil || !ok || pub == nil {
			t.Errorf("%q: %v", line, err)
		}
	})
}

// FuzzPublicKey checks that the text of a public file has one form.
func FuzzPublicKey(f *testing.F) {
	line, err := publicLine(testKey(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Fuzz(func(t *testing.T, text []byte) {
		if pub, ok := parsePublic(text); ok && !bytes.Equal(formatPublic(pub), text) {
			t.Errorf("%q", text)
		}
	})
}

// TestSaveConcurrently checks that of several processes only one creates a key.
func TestSaveConcurrently(t *testing.T) {
	path := filepath.Join(privateDir(t), "ssh_ca")
	const n = 8
	results := make(chan error, n)
	for i := range byte(n) {
		go func() { results <- SaveKey(path, testKey(i)) }()
	}
	saved := 0
	for range n {
		if err := <-results; err == nil {
			saved++
		} else {
			wantRefusal(t, err, bailey.Conflict, "exists already")
		}
	}
	key, err := LoadKey(path)
	if err != nil || saved != 1 {
		t.Fatalf("%d keys saved: %v", saved, err)
	}
	if line, err := publicLine(key); err != nil || !bytes.Equal(line, getFile(t, path+".pub")) {
		t.Error("the public file is of another key")
	}
}
