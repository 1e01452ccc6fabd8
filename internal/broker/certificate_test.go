//go:build linux || darwin

package broker

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/sshca"
)

// hostTable has a lease for certificates, and one for values.
func hostTable(more string) string {
	return fmt.Sprintf("admitted: [%d]\nleases:\n  hosts: {ssh: {key: ssh_ca, hosts: [web1, db-vm]%s}, ttl: 20m, approval: none}\n"+
		"  value: {literal: x-value, ttl: 1m, approval: none}\n", os.Geteuid(), more)
}

// newCertifying returns a broker with the key of an authority.
func newCertifying(t *testing.T, more string) (*house, ed25519.PrivateKey, Certifier) {
	t.Helper()
	h := &house{t: t, dir: t.TempDir()}
	h.config = Config{Dir: h.dir, Program: "test"}
	key, err := sshca.GenerateKey(nil)
	if err == nil {
		err = os.Chmod(h.dir, 0o700)
	}
	if err == nil {
		err = sshca.SaveKey(filepath.Join(h.dir, "ssh_ca"), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.begin(t, hostTable(more))
	return h, key, Certifier{h.client, "hosts"}
}

func certifyRequest(t *testing.T, host string, options ...string) sshca.Request {
	t.Helper()
	key, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return sshca.Request{Key: public, Principal: sshca.ReadOnly, ShellOptions: options,
		Identity: sshca.Identity{User: "somebody else", VM: host, Sandbox: "source"}}
}

// TestCertify checks that a certificate has the lifetime, the addresses and the user that the broker knows, and that the
// journal has its line.
func TestCertify(t *testing.T) {
	h, key, c := newCertifying(t, ", addresses: [192.0.2.0/24]")
	r := certifyRequest(t, "web1", "--timeout=60")
	cert, err := c.Issue(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	checker := ssh.CertChecker{SupportedCriticalOptions: []string{"force-command", "source-address"}}
	if err := checker.CheckCert("bailey-readonly", cert.SSH); err != nil {
		t.Error(err)
	}
	if want := ssh.FingerprintSHA256(must(ssh.NewPublicKey(key.Public()))); cert.Authority != want {
		t.Errorf("signed by %s, want %s", cert.Authority, want)
	}
	options := cert.SSH.CriticalOptions
	if options["source-address"] != "192.0.2.0/24" || options["force-command"] != sshca.DefaultShell+" --timeout=60" || len(cert.SSH.Extensions) > 0 {
		t.Errorf("%v %v", options, cert.SSH.Extensions)
	}
	if lives := time.Until(cert.Expires); lives > 20*time.Minute || lives < 19*time.Minute {
		t.Errorf("valid for %v", lives)
	}
	if !strings.HasPrefix(cert.Identity, "user:"+accountName(os.Geteuid())+"-vm:web1-sbx:source-cert:") {
		t.Errorf("the identity is %s", cert.Identity)
	}
	journal, err := os.ReadFile(filepath.Join(h.dir, journalName))
	if err != nil || !strings.Contains(string(journal), `"event":"certify","leases":[{"id":"`+fmt.Sprint(cert.Serial)+`","name":"hosts","mint":"`+cert.Identity+`"`) {
		t.Errorf("%v: %s", err, journal)
	}
	if _, err := c.Issue(t.Context(), certifyRequest(t, sshca.IDFor("db-vm"))); err != nil {
		t.Errorf("a host whose name ends like a delimiter: %v", err)
	}
	keys, err := c.Trusted(t.Context())
	if err != nil || !strings.HasPrefix(string(keys), "ssh-ed25519 ") {
		t.Errorf("%q, %v", keys, err)
	}
	h.end()
	h.start(false) // the journal can be read again, and no certificate counts as an open loan
	if hello, err := h.client.Hello(t.Context()); err != nil || hello.Open != 0 {
		t.Errorf("%+v, %v", hello, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCertifyRefuses(t *testing.T) {
	h, _, c := newCertifying(t, "")
	for name, r := range map[string]sshca.Request{
		`no certificate for the host "db1"`:            certifyRequest(t, "db1"),
		`the option "--approved=`:                      certifyRequest(t, "web1", "--approved="+strings.Repeat("a", 64)),
		`the option "--without-landlock"`:              certifyRequest(t, "web1", "--without-landlock"),
		"is not an option of the read-only shell":      certifyRequest(t, "web1", "--x y"),
		"certifies Ed25519 keys for source hosts only": func() sshca.Request { r := certifyRequest(t, "web1"); r.Principal = sshca.Sandbox; return r }(),
	} {
		if _, err := c.Issue(t.Context(), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want %q: %v", name, err)
		}
	}
	for lease, says := range map[string]string{"value": "issues no certificates", "other": "not in the broker's table"} {
		if _, err := (Certifier{h.client, lease}).Issue(t.Context(), certifyRequest(t, "web1")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", lease, err)
		}
	}
	// The authority is not lent as a value.
	if _, err := h.client.Lend(t.Context(), bailey.Loan{Receipt: "r-1", Capability: "x.y", Wants: []bailey.Want{{Name: "hosts", Env: "KEY"}}}); bailey.KindOf(err) != bailey.Unavailable {
		t.Errorf("lent: %v", err)
	}
	// A key that others can read is refused.
	if err := os.Chmod(filepath.Join(h.dir, "ssh_ca"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Issue(t.Context(), certifyRequest(t, "web1")); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a key of mode 0644: %v", err)
	}
	// A uid that is not admitted gets neither certificates nor keys.
	h.write(strings.Replace(hostTable(""), fmt.Sprint(os.Geteuid()), "65533", 1))
	t2 := must(h.s.ReadTable())
	if err := h.s.Apply(t2.Digest); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Issue(t.Context(), certifyRequest(t, "web1")); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("not admitted: %v", err)
	}
	if _, err := c.Trusted(t.Context()); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("not admitted: %v", err)
	}
}

func TestCertifyOptionsOfTheTable(t *testing.T) {
	_, _, c := newCertifying(t, ", requests: true, withoutLandlock: true")
	if _, err := c.Issue(t.Context(), certifyRequest(t, "web1", "--approved="+strings.Repeat("a", 64), "--without-landlock")); err != nil {
		t.Error(err)
	}
}

func TestSSHLeaseFaults(t *testing.T) {
	for text, says := range map[string]string{
		"ssh: {key: ssh_ca}, approval: none":                                    "hosts, names of source hosts",
		"ssh: {hosts: [web1]}, approval: none":                                  "it needs key",
		"ssh: {key: ssh_ca, hosts: [web1], addresses: [here]}, approval: none":  "neither an address nor a network",
		"ssh: {key: ssh_ca, hosts: [web1]}, ttl: 30s, approval: none":           "ttl must be from 1m0s to 1h0m0s",
		"ssh: {key: ssh_ca, hosts: [web1]}, approval: {level: signed-software}": "write approval: none",
		"ssh: {key: ssh_ca, hosts: [web1], principal: root}, approval: none":    "principal",
	} {
		if _, err := ParseTable([]byte("leases:\n  hosts: {"+text+"}\n"), t.TempDir(), Adapters()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	table, err := ParseTable([]byte("leases:\n  hosts: {ssh: {key: ssh_ca, hosts: ['*']}, approval: none}\n"), t.TempDir(), Adapters())
	if err != nil || !slices.Contains(table.Lines(), "lease hosts: ssh certificates for *, for anything that it allows, 30m0s, no approval") {
		t.Errorf("%v, %v", table, err)
	}
}
