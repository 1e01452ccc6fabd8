//go:build linux

package source

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
	"bailey/internal/readonlyshell"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// buildShell builds the login shell once for all tests.
var buildShell = sync.OnceValues(func() ([]byte, error) { return buildProgram(readonlyshell.Name) })

// buildProgram builds a static program of this module, and returns it.
func buildProgram(name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "bailey/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	return os.ReadFile(filepath.Join(dir, name))
}

// bench is a host with the parts that prepare it and log in to it.
type bench struct {
	*sshhost.Host
	access  *Access
	key     ed25519.PrivateKey // of the authority
	trusted []byte
	person  *remote.Client
	steps   []string // that were reported, with their results
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "landlock", "seccomp")
	return newBenchOn(t, sshhost.Start(t, "web"))
}

// newBusyBox is newBench with a host on which BusyBox provides the programs, without tools for accounts.
func newBusyBox(t *testing.T) *bench {
	t.Helper()
	ktest.Long(t)
	ktest.Require(t, "landlock", "seccomp")
	return newBenchOn(t, sshhost.StartBusyBox(t, "web", ktest.Fetched(t, "busybox-"+runtime.GOARCH)))
}

func newBenchOn(t *testing.T, h *sshhost.Host) *bench {
	t.Helper()
	b := &bench{Host: h}
	key, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.key = key
	b.access, b.trusted = newAccess(t, key, time.Now)
	b.login(t)
	return b
}

// login connects as the person.
func (b *bench) login(t *testing.T) {
	t.Helper()
	r, err := remote.Resolver{Config: b.Config}.Route(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	login, _ := remote.PersonLogin(r)
	if b.person, err = (remote.Dialer{}).Dial(t.Context(), r, login); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.person.Close() })
}

// newAccess returns an access with an authority, and the line that hosts must trust.
func newAccess(t *testing.T, key ed25519.PrivateKey, now func() time.Time) (*Access, []byte) {
	t.Helper()
	authority, err := sshca.New(sshca.Config{Signer: key, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := sshca.NewCredentials(sshca.CredentialsConfig{Issuer: authority, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	pool := &remote.Pool{Now: time.Now, Dialer: remote.Dialer{Pause: 100 * time.Millisecond}}
	t.Cleanup(pool.Close)
	return &Access{Pool: pool, Credentials: credentials, User: "ann"},
		ssh.MarshalAuthorizedKey(authority.PublicKey())
}

// preparation returns a preparation that is refused, if stop is not "", before the step of that name.
func (b *bench) preparation(stop string) *Preparation {
	b.steps = nil
	return &Preparation{Client: b.person, Host: Host{Name: "web", SSHConfig: b.Config}, Trusted: b.trusted, Journal: true,
		Shell: func(machine string) ([]byte, error) {
			if want := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; machine != want {
				return nil, errors.New("a host of the architecture " + machine)
			}
			return buildShell()
		},
		Login: func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
			return b.access.Status(ctx, Host{Name: "web", SSHConfig: b.Config}, pinned)
		},
		Confirm: func(_ context.Context, s Step) error {
			if stop != "" && strings.HasPrefix(s.Name, stop) {
				return errors.New("stopped")
			}
			return nil
		},
		Report: func(s Step, result string) {
			name, _, _ := strings.Cut(s.Name, " ")
			b.steps = append(b.steps, name+" "+result)
		}}
}

// state returns everything below the directories that a preparation changes: names, modes, owners and contents. Account
// tools keep copies in /etc/passwd- and others.
func (b *bench) state(t *testing.T) string {
	t.Helper()
	return b.Sh(
		t,
		`cd / && { find etc usr/local/bin var/lib/bailey-readonly ! -path 'etc/*-' -exec stat -c '%n %a %U %G' {} + 2>/dev/null; `+
			`find etc usr/local/bin -type f ! -path 'etc/*-' -exec sha256sum {} + ; } | sort`,
	)
}

func TestPrepare(t *testing.T) { checkPreparation(t, newBench(t)) }

// TestPrepareBusyBox does the same on a host with another userland, and looks at it.
func TestPrepareBusyBox(t *testing.T) {
	b := newBusyBox(t)
	checkPreparation(t, b)
	checkLines(t, b, map[string]string{"id -un | cat": "bailey-readonly", "ls -la /etc/ssh": "bailey_ca.pub",
		"ps | grep sshd": "sshd", "grep -c . /etc/passwd && head -n 1 /etc/passwd": "root:"})
}

// TestPrepareSystemd does the same in an emulated machine with systemd, and reads its journal.
func TestPrepareSystemd(t *testing.T) {
	ktest.Long(t)
	b := newBenchOn(t, sshhost.StartGuest(t, "web"))
	checkPreparation(t, b)
	checkLines(t, b, map[string]string{"journalctl -u ssh -n 50 --no-pager": "Accepted publickey for bailey-readonly",
		"systemctl is-active ssh": "active", "journalctl -k -n 2000 --no-pager | grep -c .": "", "id -Gn": "systemd-journal",
		"systemctl status ssh --no-pager | head -n 3": "OpenBSD Secure Shell server"})
}

// checkLines prepares a host and runs lines there. Each must succeed and print the text.
func checkLines(t *testing.T, b *bench, lines map[string]string) {
	t.Helper()
	h, err := b.preparation("").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	registry := &Registry{Dir: t.TempDir()}
	if err := registry.Put(h); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Registry: registry, Access: func() (*Access, error) { return b.access, nil }}
	for line, says := range lines {
		run, err := r.Plan(t.Context(), bailey.Job{Args: []string{"run", "web", line}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var out, log bytes.Buffer
		if exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &log}); err != nil || exit.Code != 0 || !strings.Contains(out.String(), says) {
			t.Errorf("%s: %+v %v %q %q", line, exit, err, out.String(), log.String())
		}
	}
}

// checkPreparation prepares a host twice and removes the preparation twice.
func checkPreparation(t *testing.T, b *bench) {
	t.Helper()
	before := b.state(t)
	h, err := b.preparation("").Run(t.Context())
	if err != nil {
		t.Fatalf("%v %v\n%s", err, b.steps, b.Log(t))
	}
	if !h.Prepared() || h.LandlockABI == 0 || h.System == "" {
		t.Errorf("%+v", h)
	}
	if want := "install_shell changed, add_account changed, install_keys changed, install_principals changed, install_config changed, reload_sshd changed"; strings.Join(
		b.steps,
		", ",
	) != want {
		t.Errorf("%v", b.steps)
	}
	prepared := b.state(t)
	// The second time changes nothing.
	if _, err := b.preparation("").Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.steps {
		if !strings.HasSuffix(s, " unchanged") {
			t.Errorf("the second time: %s", s)
		}
	}
	if again := b.state(t); again != prepared {
		t.Errorf("the second time changed:\n%s", changes(prepared, again))
	}
	// What is added is removed.
	if result, err := Unprepare(t.Context(), b.person); err != nil || strings.TrimSpace(result) != "changed" {
		t.Errorf("%q, %v", result, err)
	}
	if after := b.state(t); after != before {
		t.Errorf("after the removal:\n%s", changes(before, after))
	}
	if result, err := Unprepare(t.Context(), b.person); err != nil || strings.TrimSpace(result) != "unchanged" {
		t.Errorf("%q, %v", result, err)
	}
}

// changes returns the lines that only one of two texts has.
func changes(before, after string) (text string) {
	for _, d := range []struct{ sign, a, b string }{{"- ", before, after}, {"+ ", after, before}} {
		has := map[string]bool{}
		for line := range strings.Lines(d.b) {
			has[line] = true
		}
		for line := range strings.Lines(d.a) {
			if !has[line] {
				text += d.sign + line
			}
		}
	}
	return text
}

// TestPrepareInterrupted kills the process of a preparation before each of its steps, and before its login at the end. The
// preparation can then be run again, with the same end, and be removed.
func TestPrepareInterrupted(t *testing.T) {
	b := newOwnBench(t)
	b.write(ownText("status"))
	before := b.state(t)
	b.prepare("", nil)
	prepared := b.state(t)
	var stops []string
	for _, s := range b.steps {
		name, _, _ := strings.Cut(s, " ")
		stops = append(stops, name)
	}
	if len(stops) != 7 {
		t.Fatalf("%q", stops)
	}
	for _, stop := range append(stops[1:], killedAtLogin) {
		if _, err := Unprepare(t.Context(), b.person); err != nil {
			t.Fatal(err)
		}
		if after := b.state(t); after != before {
			t.Errorf("before %s:\n%s", stop, changes(before, after))
		}
		b.killPreparation(stop)
		if after := b.state(t); after == before {
			t.Errorf("nothing was done before %s", stop)
		}
		b.prepare("", nil)
		if again := b.state(t); again != prepared {
			t.Errorf("after %s:\n%s", stop, changes(prepared, again))
		}
	}
}

// TestPrepareRefusedHalfway checks that a no to a later question leaves the host as it was.
func TestPrepareRefusedHalfway(t *testing.T) {
	b := newBench(t)
	before := b.state(t)
	if _, err := b.preparation("install_config").Run(t.Context()); err == nil || err.Error() != "stopped" {
		t.Errorf("%v", err)
	}
	if len(b.steps) != 5 || !strings.HasPrefix(b.steps[4], "roll_back ") {
		t.Errorf("%q", b.steps)
	}
	if after := b.state(t); after != before {
		t.Errorf("after no:\n%s", changes(before, after))
	}
}

// TestPrepareRollsBack checks that a configuration that sshd refuses, and one in which an earlier line wins, leave the
// host as it was, and that the person can still log in.
func TestPrepareRollsBack(t *testing.T) {
	b := newBench(t)
	for says, line := range map[string]string{
		"sshd -t refuses":               "NoSuchOption yes",
		`does not apply "permittty no"`: "Match User bailey-readonly\\n  PermitTTY yes\\nMatch all",
	} {
		b.Sh(t, "cp /etc/ssh/sshd_config /run/saved; printf '"+line+"\\n' >/etc/ssh/sshd_config.d/00-first.conf")
		before := b.state(t)
		if _, err := b.preparation("").Run(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", line, err)
		}
		if after := b.state(t); after != before {
			t.Errorf("%s:\n%s", line, changes(before, after))
		}
		b.Sh(t, "rm /etc/ssh/sshd_config.d/00-first.conf")
	}
	// A login that fails after the reload: the certificate is of an authority that the host does not trust.
	before := b.state(t)
	p := b.preparation("")
	other, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := newAccess(t, other, time.Now)
	p.Login = func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
		return foreign.Status(ctx, Host{Name: "web", SSHConfig: b.Config}, pinned)
	}
	if _, err := p.Run(t.Context()); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a foreign authority: %v", err)
	}
	if after := b.state(t); after != before {
		t.Errorf("after a failed login:\n%s", changes(before, after))
	}
	if _, err := b.person.Run(t.Context(), remote.Command{Line: "true"}); err != nil {
		t.Error(err)
	}
}

// TestPrepareRefuses checks hosts that must not be prepared.
func TestPrepareRefuses(t *testing.T) {
	b := newBench(t)
	for says, do := range map[string][2]string{
		"Bailey did not create it":    {"useradd --system bailey-readonly", "userdel bailey-readonly"},
		"and Bailey did not write it": {"echo x >/etc/ssh/bailey_ca.pub", "rm /etc/ssh/bailey_ca.pub"},
	} {
		b.Sh(t, do[0])
		before := b.state(t)
		if _, err := b.preparation("").Run(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
		if after := b.state(t); after != before {
			t.Errorf("%q:\n%s", says, changes(before, after))
		}
		b.Sh(t, do[1])
	}
	// The account is in a group that has the rights of root.
	if _, err := b.preparation("").Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.Sh(t, "usermod -a -G disk bailey-readonly")
	if _, err := b.preparation("").Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in the group disk") {
		t.Errorf("%v", err)
	}
}
