//go:build linux

package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// signer is a person with a repository, a gateway, and git through its shim.
type signer struct {
	t               *testing.T
	dir, repo, shim string
	env             []string
}

// newSigner makes a repository of a person who wants all signed. settings are the person's own, beside name and address.
func newSigner(t *testing.T, settings string, env ...string) *signer {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{t: t, dir: dir, repo: filepath.Join(dir, "repo"), shim: filepath.Join(dir, "home/shims/git")}
	s.env = append(os.Environ(), "HOME="+dir+"/me", "BAILEY_HOME="+dir+"/home", "BAILEY_OPERATOR=1", "GIT_CONFIG_NOSYSTEM=1", "XDG_CONFIG_HOME=")
	s.env = append(s.env, env...)
	s.write("me/.gitconfig", "[user]\nname = Ada Lovelace\nemail = ada@example.org\n[commit]\ngpgSign = true\n[tag]\ngpgSign = true\n"+settings)
	s.write("repo/file", "1\n")
	s.must("git", "init", "-q", "-b", "main", s.repo)
	s.must("bailey", "init", "--yes", s.repo)
	s.must("bailey", "shim", "install", "git", "--yes")
	for _, c := range []string{"add", "commit", "commit-amend", "tag-create", "merge", "merge-continue", "rebase", "rebase-continue", "cherry-pick",
		"pick-continue", "revert"} {
		s.must("bailey", "allow", "git."+c, "--yes")
	}
	t.Cleanup(func() { s.run("bailey", "gateway", "stop") })
	return s
}

func (s *signer) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	os.MkdirAll(filepath.Dir(path), 0o700)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *signer) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = s.env
	if cmd.Dir = s.repo; len(args) > 0 && args[len(args)-1] == s.repo {
		cmd.Dir = s.dir
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *signer) must(name string, args ...string) string {
	s.t.Helper()
	out, err := s.run(name, args...)
	if err != nil {
		s.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// git runs a command through the shim, which must succeed.
func (s *signer) git(line string) { s.t.Helper(); s.must(s.shim, strings.Fields(line)...) }

// change writes the file of the repository and puts it into the index.
func (s *signer) change(text string) { s.t.Helper(); s.write("repo/file", text); s.git("add file") }

// signedAll checks with git itself that every commit of the branch has a good signature.
func (s *signer) signedAll(after string) {
	s.t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(s.must("git", "log", "--format=%G? %h %s")), "\n") {
		if line[0] != 'G' && line[0] != 'U' { // U: a good signature by a key of unknown validity, as those of gpg here
			s.t.Errorf("after %s: %s", after, line)
		}
	}
	s.must("git", "verify-commit", "HEAD")
}

// TestSigned checks that each command which makes commits or tags has them signed with the person's key, as git itself
// verifies.
func TestSigned(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "account", "userns", "netns", "git", "ssh-keygen", "ssh-agent", "gpg") // ssh-keygen and ssh-add refuse a user without an account
	t.Run("ssh agent", func(t *testing.T) {
		s := newSigner(t, "[gpg]\nformat = ssh\n", sshAgent(t)...)
		key := filepath.Join(s.dir, "key")
		s.must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "c", "-f", key)
		s.must("ssh-add", "-q", key)
		os.Remove(key)
		public, _ := os.ReadFile(key + ".pub")
		s.write("allowed", "ada@example.org "+string(public))
		s.must("git", "config", "--global", "user.signingKey", "key::"+strings.TrimSpace(string(public)))
		s.must("git", "config", "--global", "gpg.ssh.allowedSignersFile", s.dir+"/allowed")
		signEverything(s)
		refusesOthers(s, key+".pub")
	})
	t.Run("gpg", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "gpg") // a socket's path must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			exec.Command("gpgconf", "--homedir", dir, "--kill", "all").Run()
			os.RemoveAll(dir)
		})
		s := newSigner(t, "", "GNUPGHOME="+dir)
		s.must("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "Ada Lovelace <ada@example.org>", "ed25519", "sign", "never")
		signEverything(s)
	})
}

// sshAgent starts an agent for a test and returns its variable.
func sshAgent(t *testing.T) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	out, err := exec.Command("ssh-agent", "-s", "-a", filepath.Join(dir, "s")).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, pid, _ := strings.Cut(string(out), "SSH_AGENT_PID=")
	pid, _, _ = strings.Cut(pid, ";")
	t.Cleanup(func() { exec.Command("kill", pid).Run() })
	return []string{"SSH_AUTH_SOCK=" + filepath.Join(dir, "s")}
}

// signEverything runs every command that makes commits or tags.
func signEverything(s *signer) {
	s.t.Helper()
	s.change("1\n")
	s.git("commit -q -m one")
	s.change("2\n")
	s.git("commit -q -m two")
	s.git("commit -q --amend -m second")
	s.signedAll("commit and amend")
	s.git("tag -m version v1")
	s.git("tag -s -m version v2")
	s.must("git", "verify-tag", "v1", "v2")

	s.must("git", "switch", "-q", "-c", "topic", "HEAD~1")
	s.write("repo/other", "1\n")
	s.git("add other")
	s.git("commit -q -m other")
	s.must("git", "switch", "-q", "main")
	s.git("merge --no-ff -m joined topic")
	s.git("revert --no-edit HEAD~1")
	s.signedAll("merge and revert")

	s.must("git", "switch", "-q", "-c", "moved", "topic")
	s.git("rebase main~2")
	s.git("cherry-pick main")
	s.signedAll("rebase and cherry-pick")

	// conflicts: each command stops, and goes on when they are solved
	for _, c := range []struct{ command, next string }{
		{"merge side", "merge --continue"}, {"rebase side", "rebase --continue"}, {"cherry-pick side", "cherry-pick --continue"},
	} {
		s.must("git", "switch", "-q", "main")
		verb, _, _ := strings.Cut(c.command, " ")
		s.must("git", "branch", "-qf", "side", "main")
		s.must("git", "switch", "-q", "side")
		s.change("side " + verb + "\n")
		s.git("commit -q -m side")
		s.must("git", "switch", "-q", "-c", "for-"+verb, "main")
		s.change("here " + verb + "\n")
		s.git("commit -q -m here")
		if out, err := s.run(s.shim, strings.Fields(c.command)...); err == nil {
			s.t.Errorf("%s has no conflict:\n%s", c.command, out)
		}
		s.change("both " + verb + "\n")
		s.git(c.next)
		s.signedAll(c.next)
	}
}

// refusesOthers checks that nothing is signed as another person or made unsigned.
func refusesOthers(s *signer, keyFile string) {
	s.t.Helper()
	head := s.must("git", "rev-parse", "HEAD")
	refused := func(says string, args ...string) {
		s.t.Helper()
		out, err := s.run(s.shim, args...)
		if err == nil || !strings.Contains(out, says) || s.must("git", "rev-parse", "HEAD") != head {
			s.t.Errorf("%q: %v, want %q\n%s", args, err, says, out)
		}
	}
	commit := []string{"commit", "-q", "--allow-empty", "-m", "x"}
	for name, value := range map[string]string{"user.email": "eve@example.org", "user.signingKey": "/eve.pub", "gpg.ssh.program": "/tmp/x"} {
		s.must("git", "config", name, value)
		refused("the repository sets another", commit...)
		s.must("git", "config", "--unset", name)
	}
	s.must("ssh-add", "-q", "-d", keyFile)
	refused("the ssh agent does not have the key", commit...)
	s.git("commit -q --allow-empty --no-gpg-sign -m unsigned")
	if got := s.must("git", "log", "-1", "--format=%G?"); strings.TrimSpace(got) != "N" {
		s.t.Errorf("--no-gpg-sign: %q", got)
	}
}
