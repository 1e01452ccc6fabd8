package sshca

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

var update = flag.Bool("update", false, "write the golden files")

// keygen runs ssh-keygen in dir, in the time zone UTC.
func keygen(dir, input string, args ...string) (string, error) {
	cmd := exec.Command("ssh-keygen", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestGolden compares the output of ssh-keygen -L for certificates of fixed keys, serials and times.
func TestGolden(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	for name, change := range map[string]func(*Request){
		"sandbox":  func(*Request) {},
		"readonly": func(r *Request) { r.Principal, r.Lifetime = ReadOnly, time.Hour },
		"source": func(r *Request) {
			r.Principal, r.SourceAddresses, r.Identity.Cert = ReadOnly, []string{"192.0.2.7", "2001:db8::/32"}, "42"
		},
	} {
		a := newAuthority(t, testKey(1), newClock().Now, endless(0x5a))
		r := request(t, Sandbox)
		change(&r)
		dir := t.TempDir()
		putFile(t, filepath.Join(dir, "key-cert.pub"), issue(t, a, r).AuthorizedKey(), 0o644)
		got, err := keygen(dir, "", "-L", "-f", "key-cert.pub")
		if err != nil {
			t.Fatal(err, got)
		}
		got = strings.ReplaceAll(got, " \n", "\n") // spaces at the end of a line
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			putFile(t, golden, []byte(got), 0o644)
		}
		if want := getFile(t, golden); got != string(want) {
			t.Errorf("%s:\n%swant\n%s", name, got, want)
		}
	}
}

// TestKeygenReads checks that ssh-keygen reads a certificate for each accepted key type.
func TestKeygenReads(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	a, dir := newAuthority(t, testKey(1), newClock().Now, nil), t.TempDir()
	for _, key := range acceptedKeys(t) {
		r := request(t, Sandbox)
		r.Key = key
		c := issue(t, a, r)
		putFile(t, filepath.Join(dir, "key-cert.pub"), c.AuthorizedKey(), 0o644)
		out, err := keygen(dir, "", "-L", "-f", "key-cert.pub")
		if err != nil || !strings.Contains(out, c.Identity) || !strings.Contains(out, c.Fingerprint) {
			t.Errorf("%s: %v\n%s", key.Type(), err, out)
		}
	}
}

// TestKeygenVerifies signs a text with the key of a certificate and lets ssh-keygen verify it at several times, for
// several principals, and with both keys of a rotation.
func TestKeygenVerifies(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	clock := newClock()
	s := newStore(t, clock, filepath.Join(privateDir(t), "ssh_ca"))
	first := done(t)(s.Create()).Signing
	second := done(t)(s.BeginRotation()).Other
	sign := func() (dir, signature string) {
		key, err := s.Load()
		if err != nil {
			t.Fatal(err)
		}
		a := newAuthority(t, key, clock.Now, nil)
		cache, err := NewCredentials(CredentialsConfig{Issuer: a, Now: clock.Now, Dir: privateDir(t)})
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Dir(get(t, cache, target("web")).KeyFile)
		putFile(t, filepath.Join(dir, "text"), []byte("text\n"), 0o600)
		if out, err := keygen(dir, "", "-Y", "sign", "-n", "test", "-f", "key-cert.pub", "text"); err != nil {
			t.Fatal(err, out)
		}
		return dir, "text.sig"
	}
	dir, signature := sign()
	for _, c := range []struct {
		name, principal, at string
		trusted             []TrustedKey
		good                bool
		says                string
	}{
		{"good", "sandbox", "20261125120100Z", []TrustedKey{first}, true, "Good"},
		{"at the beginning", "sandbox", "20261125115900Z", []TrustedKey{first}, true, "Good"},
		{"both trusted", "sandbox", "20261125120100Z", []TrustedKey{second, first}, true, "Good"},
		{"not yet valid", "sandbox", "20261125115859Z", []TrustedKey{first}, false, "not yet valid"},
		{"in the last second", "sandbox", "20261125122959Z", []TrustedKey{first}, true, "Good"},
		{"expired", "sandbox", "20261125123000Z", []TrustedKey{first}, false, "expired"},
		{"foreign authority", "sandbox", "20261125120100Z", []TrustedKey{second}, false, ""},
		{"wrong principal", "bailey-readonly", "20261125120100Z", []TrustedKey{first}, false, ""},
	} {
		var allowed strings.Builder
		for _, k := range c.trusted {
			allowed.WriteString("* cert-authority " + k.Line + "\n")
		}
		putFile(t, filepath.Join(dir, "allowed"), []byte(allowed.String()), 0o600)
		out, err := keygen(dir, "text\n", "-Y", "verify", "-O", "verify-time="+c.at, "-n", "test", "-I", c.principal,
			"-f", "allowed", "-s", signature)
		if (err == nil) != c.good || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
	}
}

// TestKeygenKeys checks that a key of ssh-keygen can be the key of an authority if it has no passphrase.
func TestKeygenKeys(t *testing.T) {
	ktest.Require(t, "ssh-keygen", "account")
	dir := privateDir(t)
	for name, args := range map[string][]string{"plain": {"-N", ""}, "locked": {"-N", "passphrase", "-a", "1"}} {
		if out, err := keygen(dir, "", append(args, "-q", "-t", "ed25519", "-f", name)...); err != nil {
			t.Fatal(err, out)
		}
	}
	key, err := LoadKey(filepath.Join(dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	line, err := publicLine(key)
	if err != nil {
		t.Fatal(err)
	}
	got := getFile(t, filepath.Join(dir, "plain.pub"))
	if !bytes.HasPrefix(got, bytes.TrimSuffix(line, []byte(keyComment+"\n"))) {
		t.Errorf("%s, want %s", got, line)
	}
	_, err = LoadKey(filepath.Join(dir, "locked"))
	wantRefusal(t, err, bailey.Invalid, "encrypted with a passphrase")
}
