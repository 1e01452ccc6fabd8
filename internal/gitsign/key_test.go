package gitsign

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"bailey/internal/ktest"
	"bailey/pack"
)

func runTool(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// startAgent starts an ssh agent that has the keys in these files, and ends it with the test.
func startAgent(t *testing.T, keys ...string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(dir, "s"))
	said := runTool(t, "", "ssh-agent", "-s", "-a", filepath.Join(dir, "s"))
	_, pid, _ := strings.Cut(said, "SSH_AGENT_PID=")
	pid, _, _ = strings.Cut(pid, ";")
	t.Cleanup(func() { exec.Command("kill", pid).Run() })
	for _, key := range keys {
		runTool(t, "", "ssh-add", "-q", key)
	}
}

// TestSSHKeys checks with which of the forms of user.signingKey a call can sign, that ssh-keygen verifies the signature,
// and that every other is refused with cause and cure before anything runs.
func TestSSHKeys(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "ssh-keygen", "ssh-agent", "account")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, args := range [][]string{{"-t", "ed25519", "-N", "", "-f", at("open")}, {"-t", "ed25519", "-N", "", "-f", at("agent")},
		{"-t", "rsa", "-b", "2048", "-N", "", "-f", at("rsa")}, {"-t", "rsa", "-b", "2048", "-N", "", "-f", at("rsafile")},
		{"-t", "ecdsa", "-N", "", "-f", at("ecdsa")}, {"-t", "ed25519", "-N", "secret", "-f", at("locked")}} {
		runTool(t, "", "ssh-keygen", append([]string{"-q", "-C", "c"}, args...)...)
	}
	startAgent(t, at("agent"), at("rsa"), at("ecdsa"))
	os.Remove(at("agent"))
	read := func(name string) string { b, _ := os.ReadFile(at(name)); return strings.TrimSpace(string(b)) }
	os.WriteFile(at("rubbish"), []byte("x"), 0o600)
	for name, c := range map[string]struct {
		key, holder string
		fault       string
	}{
		"file":             {at("open"), "key file", ""},
		"public of file":   {at("open.pub"), "key file", ""},
		"rsa file":         {at("rsafile"), "key file", ""},
		"public of agent":  {at("agent.pub"), "ssh agent", ""},
		"rsa":              {at("rsa.pub"), "ssh agent", ""},
		"literal":          {"key::" + read("ecdsa.pub"), "ssh agent", ""},
		"old literal":      {read("agent.pub"), "ssh agent", ""},
		"locked":           {at("locked"), "", "does not have the key"},
		"public of locked": {at("locked.pub"), "", "does not have the key"},
		"literal of file":  {"key::" + read("open.pub"), "", "does not have the key"},
		"rubbish":          {at("rubbish"), "", "no key of ssh"},
		"bad literal":      {"key::x", "", "no public key"},
		"absent":           {at("none.pub"), "", "no such file"},
		"directory":        {dir, "", "no file of a key"},
		"relative":         {"id.pub", "", "absolute path"},
		"none":             {"", "", "user.signingKey is not set"},
	} {
		g := pack.GitSigning{Format: "ssh", Key: c.key, Name: "Ada Lovelace", Email: "ada@example.org"}
		s, err := (Signer{}).Prepare(t.Context(), pack.GitPerson{Signing: g}, pack.Signing{Kind: "commit", Most: 1})
		if err != nil {
			if c.fault == "" || !strings.Contains(err.Error(), c.fault) || !strings.Contains(err.Error(), "nothing is made unsigned") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if k := s.Key(); c.fault != "" || k.Holder != c.holder || !strings.HasPrefix(k.Public, "key::") {
			t.Errorf("%s: %+v", name, k)
		}
		text := []byte(plain)
		signature, err := s.holder.signText(t.Context(), text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		os.WriteFile(at("allowed"), []byte("ada "+strings.TrimPrefix(s.Key().Public, "key::")+"\n"), 0o600)
		os.WriteFile(at("sig"), signature, 0o600)
		cmd := exec.Command("ssh-keygen", "-Y", "verify", "-f", at("allowed"), "-I", "ada", "-n", "git", "-s", at("sig"))
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	for name, g := range map[string]pack.GitSigning{
		"SSH_AUTH_SOCK is not set":  {Format: "ssh", Key: at("agent.pub")},
		"gpg.ssh.defaultKeyCommand": {Format: "ssh", KeyCommand: true},
		"gpg.ssh.program":           {Format: "ssh", Key: at("open"), Program: "/opt/1Password/op-ssh-sign"},
		"x509":                      {Format: "x509", Key: "x"},
	} {
		if _, err := (Signer{}).Prepare(t.Context(), pack.GitPerson{Signing: g}, pack.Signing{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAttackSignerAgent checks that an agent which never answers, or lies about its keys, stops the call.
func TestAttackSignerAgent(t *testing.T) {
	dir, err := os.MkdirTemp("", "agent") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("SSH_AUTH_SOCK", path)
	g := pack.GitSigning{Format: "ssh", Key: "key::ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHB1YmxpY19rZXlfb2ZfMzJfYnl0ZXNfZm9yX2FkYSEh"}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := (Signer{}).Prepare(ctx, pack.GitPerson{Signing: g}, pack.Signing{}); err == nil || !strings.Contains(err.Error(), "does not have the key") {
		t.Errorf("an agent that hangs: %v", err)
	}
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	other := agent.NewKeyring()
	if err := other.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(liar{other}, conn)
		}
	}()
	public, _, err := readSSHKey(g.Key)
	if err != nil {
		t.Fatal(err)
	}
	if signature, err := (agentHolder{public}).signText(t.Context(), []byte(plain)); err == nil {
		t.Errorf("an agent that signs with another key: %q", signature)
	}
}

// liar signs with its first key, whatever key is asked for.
type liar struct{ agent.Agent }

func (l liar) Sign(_ ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	keys, err := l.List()
	if err != nil {
		return nil, err
	}
	return l.Agent.Sign(keys[0], data)
}

// newGPG makes a directory of gpg with one key of Ada, and returns its fingerprint.
func newGPG(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpg") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", dir)
	t.Cleanup(func() {
		exec.Command("gpgconf", "--homedir", dir, "--kill", "all").Run()
		os.RemoveAll(dir)
	})
	runTool(t, "", "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "Ada Lovelace <ada@example.org>", "ed25519", "sign", "never")
	list := runTool(t, "", "gpg", "--batch", "--with-colons", "--list-secret-keys")
	_, fingerprint, _ := strings.Cut(list, "\nfpr:::::::::")
	fingerprint, _, _ = strings.Cut(fingerprint, ":")
	return fingerprint
}

// TestGPGKeys checks which key of gpg signs, that gpg verifies the signature, and that a key which cannot sign is refused.
func TestGPGKeys(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "gpg")
	fingerprint := newGPG(t)
	for name, c := range map[string]struct{ key, public string }{
		"by address": {"", fingerprint}, "by id": {fingerprint[len(fingerprint)-16:], fingerprint},
		"exact": {fingerprint + "!", fingerprint + "!"}, "another": {"0123456789ABCDEF", ""}, "an option": {"--version", ""},
	} {
		g := pack.GitSigning{Key: c.key, Name: "Ada Lovelace", Email: "ada@example.org", Program: "/usr/bin/gpg"}
		s, err := (Signer{}).Prepare(t.Context(), pack.GitPerson{Signing: g}, pack.Signing{Kind: "commit", Most: 1})
		if err != nil {
			if c.public != "" || !strings.Contains(err.Error(), "no secret key") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if k := s.Key(); k.Public != c.public || k.Fingerprint != fingerprint || k.Holder != "gpg" {
			t.Errorf("%s: %+v", name, k)
		}
		signature, err := s.holder.signText(t.Context(), []byte(plain))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		file := filepath.Join(t.TempDir(), "sig")
		os.WriteFile(file, signature, 0o600)
		runTool(t, plain, "gpg", "--batch", "--verify", file, "-")
	}
}

// TestGPGList checks which key of a list of gpg signs.
func TestGPGList(t *testing.T) {
	line := func(kind, validity, can, serial string) string {
		return kind + ":" + validity + ":255:22:0:0:0::::: " + can + ":::" + serial + ":::0:\n"
	}
	f1, f2, f3 := "fpr:::::::::"+strings.Repeat("A", 40)+":\n", "fpr:::::::::"+strings.Repeat("B", 40)+":\n", "fpr:::::::::"+strings.Repeat("C", 40)+":\n"
	a, b := strings.Repeat("A", 40), strings.Repeat("B", 40)
	for name, c := range map[string]struct {
		list, wanted, want string
	}{
		"one":             {line("sec", "u", "scSC", "+") + f1, "x", a},
		"only certifies":  {line("sec", "u", "cSC", "+") + f1, "x", ""},
		"subkey":          {line("sec", "u", "cSC", "#") + f1 + line("ssb", "u", "s", "+") + f2, "x", a},
		"expired subkey":  {line("sec", "u", "cSC", "+") + f1 + line("ssb", "e", "s", "+") + f2, "x", ""},
		"revoked, other":  {line("sec", "r", "scSC", "+") + f1 + line("sec", "u", "scSC", "+") + f2, "x", b},
		"stub":            {line("sec", "u", "scSC", "#") + f1, "x", ""},
		"card":            {line("sec", "u", "scSC", "D2760001") + f1, "x", a},
		"exact subkey":    {line("sec", "u", "scSC", "+") + f1 + line("ssb", "u", "s", "+") + f2 + line("ssb", "u", "e", "+") + f3, b[:16] + "!", b + "!"},
		"exact, no right": {line("sec", "u", "scSC", "+") + f1 + line("ssb", "u", "e", "+") + f2, "0x" + b[:16] + "!", ""},
		"nothing":         {"", "x", ""},
		"cut":             {"sec:u:255\nfpr:x\n", "x", ""},
	} {
		if got := signingFingerprint(c.list, strings.HasSuffix(c.wanted, "!"), c.wanted); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
