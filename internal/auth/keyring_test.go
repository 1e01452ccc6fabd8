package auth_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/auth"
)

func TestKeyring(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.keys")
	if _, err := auth.OpenKeyring(file); !errors.Is(err, bailey.NotFound) {
		t.Errorf("no file: %v", err)
	}
	k, err := auth.NewKeyring(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := auth.NewKeyring(file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file of keys is replaced: %v", err)
	}
	seal := func(name string) string {
		sealed, err := k.Seal(name, "the secret")
		if err != nil || strings.Contains(sealed, "secret") {
			t.Fatal(sealed, err)
		}
		return sealed
	}
	first, again := seal("a"), seal("a")
	if first == again {
		t.Error("two sealed texts are the same: the nonce is not random")
	}
	if err := k.Rotate(); err != nil {
		t.Fatal(err)
	}
	second := seal("a")
	if !strings.HasPrefix(first, "v1.") || !strings.HasPrefix(second, "v2.") {
		t.Errorf("sealed as %.4s and %.4s", first, second)
	}
	if k, err = auth.OpenKeyring(file); err != nil || k.Newest() != 2 {
		t.Fatal(k, err)
	}
	for _, sealed := range []string{first, again, second} {
		if got, err := k.Open("a", sealed); got != "the secret" || err != nil {
			t.Errorf("opened as %q, %v", got, err)
		}
		if _, err := k.Open("b", sealed); err == nil {
			t.Error("a sealed text opens under another name")
		}
		changed := []byte(sealed)
		changed[len(changed)-4] ^= 1
		if _, err := k.Open("a", string(changed)); err == nil {
			t.Error("a changed text opens")
		}
	}
	other, err := auth.NewKeyring(filepath.Join(t.TempDir(), "server.keys"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []string{first, second, "", "v1.", "v01." + first[3:], "v-1.x", "v1", "x"} {
		if _, err := other.Open("a", sealed); err == nil {
			t.Errorf("%q opens with other keys", sealed)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

func TestDamagedKeyring(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "server.keys")
	if _, err := auth.NewKeyring(file); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(file, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.OpenKeyring(file); !errors.Is(err, bailey.Invalid) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
	}
	for _, text := range []string{"2 " + string(whole[len(whole)-45:]), string(whole) + string(whole), "1 AAAA\n", "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.OpenKeyring(file); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.OpenKeyring(file); !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "other users") {
		t.Errorf("a file that others may read: %v", err)
	}
}
