package sshsig

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

const space = "approval@bailey"

// keygen runs ssh-keygen in dir and returns its output and whether it succeeded.
func keygen(dir string, stdin []byte, args ...string) (string, bool) {
	cmd := exec.Command("ssh-keygen", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, ok := keygen(dir, nil, args...)
	if !ok {
		t.Fatalf("ssh-keygen %v: %s", args, out)
	}
	return out
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// agree reports whether ssh-keygen accepts the signature of message as ann's.
func agree(t *testing.T, dir string, message, armored []byte) bool {
	t.Helper()
	put(t, dir, "asked.sig", armored)
	_, ok := keygen(dir, message, "-Y", "verify", "-f", "allowed", "-I", "ann", "-n", space, "-s", "asked.sig")
	return ok
}

// TestKeygen checks that a signature of ssh-keygen is verified, that it is refused if any byte changes, and that
// ssh-keygen agrees.
func TestKeygen(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	for _, c := range []struct{ name, kind, bits, hash string }{
		{"ed25519", "ed25519", "256", "sha512"},
		{"ecdsa", "ecdsa", "256", "sha512"},
		{"rsa", "rsa", "2048", "sha512"},
		{"ed25519 sha256", "ed25519", "256", "sha256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, dir, "-q", "-t", c.kind, "-b", c.bits, "-N", "", "-C", "a comment", "-f", "key")
			list := append([]byte("# who may\n\nann "), get(t, dir, "key.pub")...)
			put(t, dir, "allowed", list)
			keys, err := ParseKeys(list)
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			message := []byte("drop table users\n")
			put(t, dir, "text", message)
			must(t, dir, "-Y", "sign", "-f", "key", "-n", space, "-O", "hashalg="+c.hash, "text")
			armored := get(t, dir, "text.sig")

			by, err := Verify(message, armored, space, keys)
			if err != nil || by.Name != "ann" || by.Touch {
				t.Fatalf("%+v %v", by, err)
			}
			if print := must(t, dir, "-l", "-f", "key.pub"); !strings.Contains(print, " "+by.Key+" ") {
				t.Errorf("fingerprint %s, ssh-keygen has %s", by.Key, print)
			}
			if !agree(t, dir, message, armored) {
				t.Error("ssh-keygen does not verify its own signature")
			}
			for i := range armored {
				for _, bits := range []byte{0x01, 0x20, 0xff} {
					changed := bytes.Clone(armored)
					changed[i] ^= bits
					if by, err := Verify(message, changed, space, keys); err == nil {
						t.Errorf("byte %d changed by %#x: %+v", i, bits, by)
					}
				}
			}
			for i := range message {
				changed := bytes.Clone(message)
				changed[i] ^= 1
				if _, err := Verify(changed, armored, space, keys); bailey.KindOf(err) != bailey.Denied {
					t.Errorf("message changed at %d: %v", i, err)
				}
			}
			if agree(t, dir, []byte("something else"), armored) {
				t.Error("ssh-keygen verifies what was not signed")
			}
		})
	}
}
