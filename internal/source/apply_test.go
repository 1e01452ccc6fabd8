//go:build linux

package source

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/hostapply"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// buildApply builds the program that applies playbooks once for all tests.
var buildApply = sync.OnceValues(func() ([]byte, error) { return buildProgram(hostapply.Name) })

// applyPreparation returns a preparation with --apply.
func (b *bench) applyPreparation(stop string) *Preparation {
	p := b.preparation(stop)
	p.Program = func(string) ([]byte, error) { return buildApply() }
	p.TryApply = func(ctx context.Context, pinned []ssh.PublicKey) error {
		return b.access.TryApply(ctx, Host{Name: "web", SSHConfig: b.Config}, pinned)
	}
	return p
}

// applyHost returns a bench with a host that is prepared for playbooks, and its runner.
func applyHost(t *testing.T) (*bench, Host, *Runner) {
	t.Helper()
	b := newBench(t)
	h, err := b.applyPreparation("").Run(t.Context())
	if err != nil {
		t.Fatalf("%v %v\n%s", err, b.steps, b.Log(t))
	}
	registry := &Registry{Dir: t.TempDir()}
	if err := registry.Put(h); err != nil {
		t.Fatal(err)
	}
	return b, h, &Runner{Registry: registry, Access: func() (*Access, error) { return b.access, nil }}
}

const script = "#!/bin/sh\nset -eu\n" + `step() { printf '%s %s %s\n' "$@" >>"$BAILEY_STEPS"; }` + "\n"

// TestPrepareApply checks that a preparation for playbooks can be repeated, interrupted by a no, and removed, and that it is
// off by default.
func TestPrepareApply(t *testing.T) {
	b := newBench(t)
	before := b.state(t)
	if _, err := b.applyPreparation("install_apply_config").Run(t.Context()); err == nil {
		t.Error("a no was ignored")
	}
	if after := b.state(t); after != before {
		t.Errorf("after no:\n%s", changes(before, after))
	}
	h, err := b.applyPreparation("").Run(t.Context())
	if err != nil || !h.Apply {
		t.Fatalf("%+v %v %v\n%s", h, err, b.steps, b.Log(t))
	}
	prepared := b.state(t)
	if !strings.Contains(prepared, "usr/local/bin/bailey-apply 4750 root bailey-apply") {
		t.Errorf("the program has other rights:\n%s", prepared)
	}
	if _, err := b.applyPreparation("").Run(t.Context()); err != nil || strings.Contains(strings.Join(b.steps, ","), " changed") {
		t.Errorf("the second time: %v %v", err, b.steps)
	}
	if again := b.state(t); again != prepared {
		t.Errorf("the second time changed:\n%s", changes(prepared, again))
	}
	if _, err := Unprepare(t.Context(), b.person); err != nil {
		t.Fatal(err)
	}
	if after := b.state(t); after != before {
		t.Errorf("after the removal:\n%s", changes(before, after))
	}
	plain, err := b.preparation("").Run(t.Context())
	if err != nil || plain.Apply || strings.Contains(b.state(t), "bailey-apply") {
		t.Errorf("without --apply: %+v %v", plain, err)
	}
}

// TestApply applies scripts by the runner, and reads the report of each step.
func TestApply(t *testing.T) {
	b, h, r := applyHost(t)
	apply := func(content string) (hostapply.Report, bailey.Exit, string) {
		t.Helper()
		run, err := r.Plan(t.Context(), bailey.Job{Args: []string{"apply", "web", content}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if plan := run.Cage().Plan; !strings.Contains(plan, hostapply.Digest([]byte(content))) || !strings.Contains(plan, `host "web"`) {
			t.Errorf("the plan does not bind digest and host: %s", plan)
		}
		var out, log bytes.Buffer
		exit, err := run.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &log})
		if err != nil {
			t.Fatal(err)
		}
		var report hostapply.Report
		if exit.Code != hostapply.ExitRefused {
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Errorf("%v: %q %q", err, out.String(), log.String())
			}
		}
		return report, exit, log.String()
	}
	report, exit, _ := apply(script + "step 1 2 'file /etc/made'\nid -u >/etc/made\nstep 2 2 'read it'\ncat /etc/made\n")
	if exit.Code != 0 || !report.OK || len(report.Changed) != 2 || !strings.Contains(exit.Login, "principal bailey-apply") {
		t.Errorf("%+v %+v", report, exit)
	}
	if got := b.Sh(t, "cat /etc/made; ls /var/lib/bailey-apply | grep -c work || true"); got != "0\n0\n" {
		t.Errorf("%q", got)
	}
	report, exit, _ = apply(script + "step 1 3 one\ntrue\nstep 2 3 two\necho reason >&2; false\nstep 3 3 three\ntouch /etc/three\n")
	if exit.Code != 1 || report.OK || strings.Join(report.Changed, ",") != "one" || strings.Join(report.Failed, ",") != "two" ||
		strings.Join(report.NotReached, ",") != "steps 3 to 3" || !strings.Contains(report.Output, "reason") {
		t.Errorf("%+v %+v", report, exit)
	}
	if got := b.Sh(t, "ls /etc/three 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("a step after a failure ran: %s", got)
	}
	for content, says := range map[string]string{"echo hello\n": "neither a playbook", script + "if\n": "refuses the script",
		"---\n- hosts: all\n": "no ansible-playbook"} {
		b.Sh(t, "if command -v ansible-playbook; then mount --bind /dev/null $(command -v ansible-playbook); fi")
		if _, exit, log := apply(content); exit.Code != hostapply.ExitRefused || !strings.Contains(log, says) {
			t.Errorf("%q: %+v %q", content, exit, log)
		}
	}
	h.Apply = false
	if err := r.Registry.Put(h); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Plan(t.Context(), bailey.Job{Args: []string{"apply", "web", script}}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a host that is not prepared for playbooks: %v", err)
	}
}

// TestAttackApply tries every other content, host, time and certificate on a host that is prepared for playbooks. None may
// change it.
func TestAttackApply(t *testing.T) {
	b, h, _ := applyHost(t)
	pinned, err := h.Pinned()
	if err != nil {
		t.Fatal(err)
	}
	content := []byte(script + "touch /etc/attacked\n")
	call := strings.Repeat("0a", 15)
	good := hostapply.Request{SHA256: hostapply.Digest(content), Host: hostapply.HostID(b.HostKey.Marshal()), Until: time.Now().Add(time.Minute)}
	with := func(id string, change func(*hostapply.Request)) hostapply.Request {
		r := good
		r.Call = call + id
		change(&r)
		return r
	}
	before := b.state(t)
	for name, attack := range map[string]struct {
		request hostapply.Request
		content string
		says    string
	}{
		"other content":  {with("01", func(*hostapply.Request) {}), string(content) + "#\n", "another one than a person approved"},
		"empty content":  {with("02", func(*hostapply.Request) {}), "", "another one than a person approved"},
		"a prefix":       {with("03", func(*hostapply.Request) {}), string(content[:len(content)-1]), "another one than a person approved"},
		"much more":      {with("04", func(*hostapply.Request) {}), string(content) + strings.Repeat("#\n", hostapply.MaxContent/2), "more than 8 MiB"},
		"other host":     {with("05", func(r *hostapply.Request) { r.Host = hostapply.Digest([]byte("x")) }), string(content), "for another host"},
		"after its time": {with("06", func(r *hostapply.Request) { r.Until = time.Now().Add(-time.Second) }), string(content), "is over"},
		"far ahead":      {with("07", func(r *hostapply.Request) { r.Until = time.Now().Add(24 * time.Hour) }), string(content), "too far ahead"},
	} {
		if code, log := b.send(t, pinned, attack.request, attack.content); code != hostapply.ExitRefused || !strings.Contains(log, attack.says) {
			t.Errorf("%s: %d %q", name, code, log)
		}
	}
	// The command of the client is not run, nor are options beyond those of the certificate.
	attackCertificates(t, b, pinned, with("08", func(*hostapply.Request) {}))
	for _, line := range []string{"su -s /bin/sh person -c '%s'", "su -s /bin/sh bailey-readonly -c '%s'", "%s"} {
		request := with("09", func(*hostapply.Request) {})
		local := `/usr/local/bin/bailey-apply -c "bailey-apply ` + strings.Join(request.Options(), " ") + `" </dev/null 2>&1`
		if out := b.Sh(t, strings.Replace(line, "%s", local, 1)+" || true"); !strings.Contains(out, "ermission denied") &&
			!strings.Contains(out, "only the account") {
			t.Errorf("%s: %q", line, out)
		}
	}
	if after := b.state(t); after != before {
		t.Errorf("an attack changed the host:\n%s", changes(before, after))
	}
	// The approved content runs, once.
	once := with("0b", func(*hostapply.Request) {})
	if code, log := b.send(t, pinned, once, string(content)); code != 0 {
		t.Errorf("the approved content: %d %q", code, log)
	}
	b.Sh(t, "rm /etc/attacked")
	if code, log := b.send(t, pinned, once, string(content)); code != hostapply.ExitRefused || !strings.Contains(log, "used before") {
		t.Errorf("the second time: %d %q", code, log)
	}
	if after := b.state(t); after != before {
		t.Errorf("the second time changed the host:\n%s", changes(before, after))
	}
}

// send sends a content with a certificate for a request.
func (b *bench) send(t *testing.T, pinned []ssh.PublicKey, r hostapply.Request, content string) (int, string) {
	t.Helper()
	var log bytes.Buffer
	res, err := b.access.sendPlaybook(t.Context(), Host{Name: "web", SSHConfig: b.Config}, pinned, r,
		remote.Command{Line: "touch /etc/attacked", Stdin: strings.NewReader(content), Stderr: &log, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("%v %q", err, log.String())
	}
	return res.Code, log.String()
}

// attackCertificates logs in to the account with every certificate but one for it.
func attackCertificates(t *testing.T, b *bench, pinned []ssh.PublicKey, r hostapply.Request) {
	t.Helper()
	foreign, err := sshca.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newAccess(t, foreign, time.Now)
	late, _ := newAccess(t, b.key, func() time.Time { return time.Now().Add(-time.Hour) })
	early, _ := newAccess(t, b.key, func() time.Time { return time.Now().Add(time.Hour) })
	route, err := remote.Resolver{Config: b.Config}.Route(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		access  *Access
		account string
		target  sshca.Target
	}{
		"the read-only certificate":             {b.access, hostapply.Name, sshca.Target{Principal: sshca.ReadOnly}},
		"that of a sandbox":                     {b.access, hostapply.Name, sshca.Target{Principal: sshca.Sandbox}},
		"of another authority":                  {other, hostapply.Name, sshca.Target{Principal: sshca.Apply, ShellOptions: r.Options()}},
		"expired":                               {late, hostapply.Name, sshca.Target{Principal: sshca.Apply, ShellOptions: r.Options()}},
		"not yet valid":                         {early, hostapply.Name, sshca.Target{Principal: sshca.Apply, ShellOptions: r.Options()}},
		"this certificate, the other account":   {b.access, Account, sshca.Target{Principal: sshca.Apply, ShellOptions: r.Options()}},
		"this certificate, the account of root": {b.access, "root", sshca.Target{Principal: sshca.Apply, ShellOptions: r.Options()}},
	} {
		c.target.Name = sshca.PathName(name)
		login, _, err := c.access.logIn(t.Context(), Host{Name: "web"}, pinned, c.account, c.target)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if client, err := (remote.Dialer{}).Dial(t.Context(), route, login); err == nil {
			client.Close()
			t.Errorf("%s logs in", name)
		} else if bailey.KindOf(err) != bailey.Denied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := b.access.logIn(t.Context(), Host{Name: "web"}, pinned, hostapply.Name,
		sshca.Target{Principal: sshca.Apply, Name: "none", ShellOptions: r.Options()[1:]}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a certificate without a digest: %v", err)
	}
	// A connection for this account forwards nothing and has no terminal.
	login, _, err := b.access.logIn(t.Context(), Host{Name: "web"}, pinned, hostapply.Name,
		sshca.Target{Principal: sshca.Apply, Name: "terminal", ShellOptions: r.Options()})
	if err != nil {
		t.Fatal(err)
	}
	client, err := (remote.Dialer{}).Dial(t.Context(), route, login)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	checkLimited(t, client, "another one than a person approved")
}
