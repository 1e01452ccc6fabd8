//go:build linux

package server

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
	"bailey/internal/localapi"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/settings"
	"bailey/internal/source"
	"bailey/internal/sshca"
)

// serveAuthority starts a broker that holds the key of an authority for the host web.example, and returns the setting that names
// it, and a function that stops the broker.
func serveAuthority(t *testing.T) (*settings.Broker, func()) {
	t.Helper()
	dir := t.TempDir()
	key, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	table := fmt.Sprintf("admitted: [%d]\nleases:\n  hosts: {ssh: {key: ssh_ca, hosts: [web.example, db-vm]}, approval: none}\n", os.Geteuid())
	for _, err := range []error{os.Chmod(dir, 0o700), sshca.SaveKey(filepath.Join(dir, "ssh_ca"), key),
		os.WriteFile(filepath.Join(dir, broker.TableName), []byte(table), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ready := make(chan struct{})
	s, err := broker.New(broker.Config{Dir: dir, Ready: func(string) { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.ReadTable()
	if err == nil {
		err = s.Apply(now.Digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	end := func() { stop(); <-ended }
	t.Cleanup(func() { end(); s.Close() })
	<-ready
	return &settings.Broker{Socket: filepath.Join(dir, broker.SocketName), UID: os.Geteuid(), SSHLease: "hosts"}, end
}

// stopper is a writer that stops something at each output.
type stopper func()

func (s stopper) Write(b []byte) (int, error) { s(); return len(b), nil }

// TestAuthorityAtBroker prepares a real host and runs a command there with certificates that the broker issues. A host
// that the broker's table does not name gets none. A command goes on if the broker stops; a new login is refused.
func TestAuthorityAtBroker(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "landlock", "seccomp", "go")
	h := sshhost.Start(t, "web.example")
	shell := filepath.Join(t.TempDir(), "shell")
	build := exec.Command("go", "build", "-o", shell, "bailey/cmd/bailey-readonly-shell")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	setting, stop := serveAuthority(t)
	authority, err := OpenHostAuthority(localapi.Home(t.TempDir()), setting)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := authority.Trusted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pool := &remote.Pool{Now: time.Now}
	defer pool.Close()
	access, err := authority.OpenAccess(pool)
	if err != nil {
		t.Fatal(err)
	}
	route, err := remote.Resolver{Config: h.Config}.Route(t.Context(), "web.example")
	if err != nil {
		t.Fatal(err)
	}
	login, done := remote.PersonLogin(route)
	defer done()
	client, err := (remote.Dialer{}).Dial(t.Context(), route, login)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	web := source.Host{Name: "web.example", SSHConfig: h.Config}
	p := &source.Preparation{Client: client, Host: web, Trusted: trusted,
		Shell: func(string) ([]byte, error) { return os.ReadFile(shell) },
		Login: func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
			return access.Status(ctx, web, pinned)
		},
		Confirm: func(context.Context, source.Step) error { return nil }, Report: func(source.Step, string) {}}
	prepared, err := p.Run(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, h.Log(t))
	}
	registry := &source.Registry{Dir: t.TempDir()}
	other := prepared
	other.Name = "other"
	for _, h := range []source.Host{prepared, other} {
		if err := registry.Put(h); err != nil {
			t.Fatal(err)
		}
	}
	r := &source.Runner{Registry: registry, Access: func() (*source.Access, error) { return access, nil }}
	run := func(host, line string, out io.Writer) (bailey.Exit, error) {
		run, err := r.Plan(t.Context(), bailey.Job{Args: []string{"run", host, line}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: out})
	}
	if exit, err := run("web.example", "id -un", nil); err != nil || exit.Code != 0 || !strings.Contains(exit.Login, "-vm:web.example-sbx:source") {
		t.Errorf("%+v %v", exit, err)
	}
	if exit, err := run("other", "id", nil); bailey.KindOf(err) != bailey.Denied || exit.Code != bailey.NeverRan {
		t.Errorf("a host that the table does not name: %+v %v", exit, err)
	}
	if exit, err := run("web.example", "echo begun; sleep 1; echo ended", stopper(stop)); err != nil || exit.Code != 0 {
		t.Errorf("the broker stopped during the command: %+v %v", exit, err)
	}
	if exit, err := run("other", "id", nil); bailey.KindOf(err) != bailey.Unavailable || exit.Code != bailey.NeverRan {
		t.Errorf("without the broker: %+v %v", exit, err)
	}
}
