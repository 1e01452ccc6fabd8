//go:build linux

package source

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// preparedHost returns a bench with a prepared host and its registry.
func preparedHost(t *testing.T) (*bench, *Registry) {
	t.Helper()
	b := newBench(t)
	h, err := b.preparation("").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Labels = []string{"env=prod"}
	registry := &Registry{Dir: t.TempDir()}
	if err := registry.Put(h); err != nil {
		t.Fatal(err)
	}
	return b, registry
}

// TestAttackCertificates checks that the host refuses certificates that are not for it, and that each refusal has its own
// message.
func TestAttackCertificates(t *testing.T) {
	b, _ := preparedHost(t)
	route, err := remote.Resolver{Config: b.Config}.Route(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	own := b.key
	foreign, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	shifted := func(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }
	for logs, c := range map[string]struct {
		key         ed25519.PrivateKey
		now         func() time.Time
		principal   sshca.Principal
		says, cures string // at the client
	}{
		"does not contain an authorized principal": {own, time.Now, sshca.Sandbox, `the certificate is for the principal ["sandbox"]`, "one for another principal never logs in"},
		"Certificate invalid: expired":             {own, shifted(-time.Hour), sshca.ReadOnly, "the certificate expired at 20", "check the clock of this machine"},
		"Certificate invalid: not yet valid":       {own, shifted(time.Hour), sshca.ReadOnly, "the certificate is not valid before 20", "check the clock of this machine"},
		"Connection closed by authenticating user": {foreign, time.Now, sshca.ReadOnly, "it does not trust the authority SHA256:", "bailey source prepare web"},
	} {
		authority, err := sshca.New(sshca.Config{Signer: c.key, Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		credentials, err := sshca.NewCredentials(sshca.CredentialsConfig{Issuer: authority, Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		credential, err := credentials.Get(t.Context(), sshca.Target{Principal: c.principal, Name: "web",
			Identity: sshca.Identity{User: "ann", VM: "web", Sandbox: "source"}})
		if err != nil {
			t.Fatal(err)
		}
		before := len(b.Log(t))
		client, err := (remote.Dialer{}).Dial(t.Context(), route, remote.Login{User: Account, Pinned: []ssh.PublicKey{b.HostKey},
			Signers: func() ([]ssh.Signer, error) { return []ssh.Signer{credential.Signer}, nil }})
		if err == nil {
			client.Close()
		}
		if bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "web refused the login of bailey-readonly: "+c.says) ||
			!strings.Contains(bailey.HintOf(err), c.cures) {
			t.Errorf("%s: %v, %q", logs, err, bailey.HintOf(err))
		}
		for end := time.Now().Add(30 * time.Second); !strings.Contains(b.Log(t)[before:], logs); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("sshd does not log %q:\n%s", logs, b.Log(t)[before:])
			}
		}
	}
	// The person's own key does not log in to the account, and the account gets no shell and no forwarding.
	login, _ := remote.PersonLogin(route)
	login.User, login.Pinned = Account, []ssh.PublicKey{b.HostKey}
	if _, err := (remote.Dialer{}).Dial(t.Context(), route, login); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("the person's key: %v", err)
	}
	target := b.access.targetFor(Host{Name: "web", SSHConfig: b.Config}, []ssh.PublicKey{b.HostKey}, readonlyshell.Request{})
	good, _, err := target.Login(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := (remote.Dialer{}).Dial(t.Context(), route, good)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	checkLimited(t, client, "no interactive login")
	checkOpenKey(t, own)
	// A changed host key is refused before anything is sent.
	changed := target
	changed.Key = "changed"
	changed.Login = func(ctx context.Context) (remote.Login, time.Time, error) {
		l, at, err := target.Login(ctx)
		l.Pinned = []ssh.PublicKey{b.Person.PublicKey()}
		return l, at, err
	}
	if res, err := b.access.Pool.Run(t.Context(), changed, remote.Command{Line: "id"}); res.Sent || err == nil || !strings.Contains(err.Error(), "host key of web has changed") {
		t.Errorf("a changed host key: %+v %v", res, err)
	}
}

// checkLimited checks that a login has no forwarding and no terminal, and that an interactive login is refused with a text.
func checkLimited(t *testing.T, client *remote.Client, says string) {
	t.Helper()
	if conn, err := client.Client.Dial("tcp", "127.0.0.1:22"); err == nil {
		conn.Close()
		t.Error("a port is forwarded")
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := session.RequestPty("xterm", 24, 80, nil); err == nil {
		t.Error("there is a terminal")
	}
	var log bytes.Buffer
	session.Stderr = &log
	if err := session.Shell(); err == nil {
		err = session.Wait()
		if err == nil || !strings.Contains(log.String(), says) {
			t.Errorf("an interactive login: %v %s", err, log.String())
		}
	}
}

// checkOpenKey checks that a key file of the authority that others can read signs nothing.
func checkOpenKey(t *testing.T, key ed25519.PrivateKey) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "work", "ssh_ca")
	store, err := sshca.NewStore(sshca.StoreConfig{Path: file, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, pem.EncodeToMemory(block), 0o600), os.Chmod(file, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Load(); bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), "0644") || !strings.Contains(bailey.HintOf(err), "chmod 600") {
		t.Errorf("a key file of mode 0644: %v, %q", err, bailey.HintOf(err))
	}
}

// certificateText matches the description of a certificate in a receipt.
var certificateText = regexp.MustCompile(`^ssh-certificate serial \d+ key SHA256:\S+ principal bailey-readonly identity user:ann-vm:web-sbx:source-cert:[0-9a-f]{32} until \d{4}-.*Z$`)

// TestRunner runs planned calls on a host.
func TestRunner(t *testing.T) {
	b, registry := preparedHost(t)
	r := &Runner{Registry: registry, Access: func() (*Access, error) { return b.access, nil }}
	for says, args := range map[string][]string{
		`"other" is not a source host`:   {"run", "other", "id"},
		"does not only read: rm writes":  {"run", "web", "rm /x"},
		"is not absolute":                {"read", "web", "etc/passwd"},
		"contains a line break":          {"read", "web", "/etc/a\nb"},
		"the line contains an expansion": {"run", "web", "echo $HOME"},
	} {
		if _, err := r.Plan(t.Context(), bailey.Job{Args: args}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := registry.Put(Host{Name: "raw"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Plan(t.Context(), bailey.Job{Args: []string{"run", "raw", "id"}}); err == nil || !strings.Contains(err.Error(), "is not prepared") {
		t.Errorf("%v", err)
	}
	b.Sh(t, "printf 'a b' >\"/etc/it's\"")
	// A line that a person approves may execute other programs, and still writes nothing.
	if _, err := r.Plan(t.Context(), bailey.Job{Args: []string{"request", "web", "id\x1b[2J"}}); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("a control character: %v", err)
	}
	for _, c := range []struct {
		args []string
		out  string
	}{
		{[]string{"run", "web", "id -un | cat"}, "bailey-readonly\n"},
		{[]string{"read", "web", "/etc/it's"}, "a b"},
		{[]string{"request", "web", "for i in 1 2; do printf $i; done; touch /tmp/x 2>/dev/null || echo no"}, "12no\n"},
		{[]string{"list", "web", "/etc/ssh/authorized_principals"}, "bailey-readonly\n"},
	} {
		run, err := r.Plan(t.Context(), bailey.Job{Args: c.args, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		cage := run.Cage()
		if cage.Kind != "host" || !cage.Enforced || strings.Join(cage.Labels, "") != "env=prod" || !strings.Contains(cage.Plan, `host "web"`) ||
			strings.Count(cage.Plan, "\n") != len(cage.PlanLayers) {
			t.Errorf("%+v", cage)
		}
		var out, log bytes.Buffer
		exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &log})
		if err != nil || exit.Code != 0 || !strings.HasSuffix(out.String(), c.out) {
			t.Errorf("%q: %+v %v %q %q", c.args, exit, err, out.String(), log.String())
		}
		if !certificateText.MatchString(exit.Login) {
			t.Errorf("%q: the receipt would name %q", c.args, exit.Login)
		}
	}
	// The connection breaks in the middle: the call may have run, and it is not repeated.
	run, err := r.Plan(t.Context(), bailey.Job{Args: []string{"run", "web", "echo started; sleep 60"}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	go func() {
		<-started
		b.access.Pool.CloseAll()
	}()
	exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: closing(started)})
	if err == nil || exit.Code == bailey.NeverRan || !strings.Contains(err.Error(), "its result is not known") {
		t.Errorf("%+v %v", exit, err)
	}
}

// closing is a writer that closes its channel at the first output.
type closing chan struct{}

func (c closing) Write(b []byte) (int, error) { close(c); return len(b), nil }

// TestRegistry checks the list of hosts.
func TestRegistry(t *testing.T) {
	r := &Registry{Dir: t.TempDir()}
	if hosts, err := r.List(); err != nil || len(hosts) != 0 {
		t.Errorf("%v %v", hosts, err)
	}
	for _, h := range []Host{{Name: ""}, {Name: "-x"}, {Name: "a b"}, {Name: "a", Labels: []string{"prod"}}, {Name: "a", Labels: []string{"A=b c"}}} {
		if err := r.Put(h); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%+v: %v", h, err)
		}
	}
	for _, name := range []string{"b", "a", "b"} {
		if err := r.Put(Host{Name: name, Labels: []string{"env=prod"}}); err != nil {
			t.Fatal(err)
		}
	}
	hosts, err := r.List()
	if err != nil || len(hosts) != 2 || hosts[0].Name != "a" {
		t.Errorf("%+v %v", hosts, err)
	}
	if err := r.Put(Host{Name: "c", Labels: []string{"env=prod"}, PreparedAt: &time.Time{}, HostKeys: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	if names, err := r.Expand([]string{"a", "env=prod", "c", "a"}); err != nil || strings.Join(names, " ") != "a c" {
		t.Errorf("%q %v", names, err)
	}
	if _, err := r.Expand([]string{"env=test"}); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("no host has the label: %v", err)
	}
	if err := r.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find("a"); bailey.KindOf(err) != bailey.NotFound {
		t.Error(err)
	}
	path := filepath.Join(r.Dir, registryFile)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.List(); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("mode 0644: %v", err)
	}
	for _, text := range []string{"", "{", `{"hosts":[],"hosts":[]}`, `{"hosts":{}}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.List(); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}
