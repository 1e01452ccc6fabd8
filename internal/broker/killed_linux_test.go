package broker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/source"
)

// TestBrokerKilled kills the broker in the middle of a command on a real host. The command ends as usual and runs once. A
// call that needs a new certificate is refused before anything is sent, and runs when the broker is there again.
func TestBrokerKilled(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "landlock", "seccomp")
	host := sshhost.Start(t, "web1")
	h, _, c := newCertifying(t, "")
	h.end() // from here on, the broker is a process of its own
	broker := child(t, h.dir, "", nil)
	pool := &remote.Pool{Now: time.Now}
	t.Cleanup(pool.Close)
	access, err := source.NewAccess(c, pool, "ann")
	if err != nil {
		t.Fatal(err)
	}
	registry := prepareHost(t, host, c, access)
	runner := &source.Runner{Registry: registry, Access: func() (*source.Access, error) { return access, nil }}
	start := func(line string, timeout time.Duration, out *bytes.Buffer) (bailey.Exit, error) {
		run, err := runner.Plan(t.Context(), bailey.Job{Args: []string{"run", "web1", line}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &killing{out, broker}})
	}
	var out bytes.Buffer
	exit, err := start("echo began; sleep 2; echo ended", time.Minute, &out)
	if err != nil || exit.Code != 0 || out.String() != "began\nended\n" || !strings.Contains(exit.Login, "ssh-certificate serial ") {
		t.Errorf("the command during which the broker was killed: %+v %v %q", exit, err, out.String())
	}
	out.Reset()
	if exit, err := start("id -un", time.Minute, &out); err != nil || exit.Code != 0 {
		t.Errorf("over the kept connection: %+v %v", exit, err)
	}
	out.Reset()
	exit, err = start("id -un", 2*time.Minute, &out) // another option, so another certificate
	if exit.Code != bailey.NeverRan || bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) == "" || out.Len() > 0 {
		t.Errorf("without the broker: %+v %v %q", exit, err, bailey.HintOf(err))
	}
	child(t, h.dir, "", nil)
	if exit, err := start("id -un", 2*time.Minute, &out); err != nil || exit.Code != 0 || out.String() != "bailey-readonly\n" {
		t.Errorf("with the broker again: %+v %v %q", exit, err, out.String())
	}
}

// killing is a writer that kills a process at the first output.
type killing struct {
	to   *bytes.Buffer
	with *exec.Cmd
}

func (k *killing) Write(b []byte) (int, error) {
	if err := k.with.Process.Kill(); err == nil {
		k.with.Wait()
	}
	return k.to.Write(b)
}

// prepareHost prepares a host for the certificates of a broker.
func prepareHost(t *testing.T, host *sshhost.Host, c Certifier, access *source.Access) *source.Registry {
	t.Helper()
	route, err := remote.Resolver{Config: host.Config}.Route(t.Context(), host.Name)
	if err != nil {
		t.Fatal(err)
	}
	login, _ := remote.PersonLogin(route)
	person, err := (remote.Dialer{}).Dial(t.Context(), route, login)
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	trusted, err := c.Trusted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "shell")
	build := exec.Command("go", "build", "-o", file, "bailey/cmd/bailey-readonly-shell")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatal(errors.New(string(text)))
	}
	in := source.Host{Name: host.Name, SSHConfig: host.Config}
	p := &source.Preparation{Client: person, Host: in, Trusted: trusted,
		Shell: func(string) ([]byte, error) { return os.ReadFile(file) },
		Login: func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
			return access.Status(ctx, in, pinned)
		},
		Confirm: func(context.Context, source.Step) error { return nil },
		Report:  func(source.Step, string) {}}
	prepared, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	registry := &source.Registry{Dir: t.TempDir()}
	if err := registry.Put(prepared); err != nil {
		t.Fatal(err)
	}
	return registry
}
