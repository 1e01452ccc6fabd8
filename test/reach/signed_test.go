//go:build linux

package reach

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/gitsign"
	"bailey/internal/ktest"
	"bailey/pack"
)

// TestSignedPull checks that the merge and the rebase of git pull have the person's signature, in a cage that reaches the
// remote and the signer.
func TestSignedPull(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "account", "ssh-keygen") // ssh-keygen refuses a user without an account
	h := newHub(t)
	key, program := filepath.Join(h.root, "key"), filepath.Join(h.root, "signs")
	said(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "c", "-f", key)
	said(t, "go", "build", "-o", program, "bailey/cmd/bailey")
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	allowed := filepath.Join(h.root, "allowed")
	os.WriteFile(allowed, []byte("a@b "+string(public)), 0o600)
	h.signer = gitsign.Signer{Program: program}
	h.person = &pack.GitPerson{Name: "a", Email: "a@b", SignCommits: true,
		Signing: pack.GitSigning{Format: "ssh", Key: key, Name: "a", Email: "a@b"}}
	bare := filepath.Join(h.dir, "a/b.git")
	for name, options := range map[string][]any{"merge": {"--no-rebase", "--no-ff"}, "rebase": {"--rebase=true"}} {
		w := h.cloned(name, "https://github.com/a/b.git")
		said(t, "git", "-C", w, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "mine")
		other := h.cloned("other-"+name, "https://github.com/a/b.git")
		h.commit(other, "theirs "+name, bare)
		h.does("git.pull", w, map[string]any{"options": options})
		got := said(t, "git", "-C", w, "-c", "gpg.ssh.allowedSignersFile="+allowed, "-c", "safe.directory=*", "log", "-1", "--format=%G? %an %s %p")
		if !strings.HasPrefix(got, "G a ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
