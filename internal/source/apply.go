package source

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/hostapply"
	"bailey/internal/remote"
	"bailey/internal/sshca"
)

// applyWindow is the lifetime of a certificate for one playbook: the time from the approval's use to the login.
const applyWindow = 5 * time.Minute

// maxPlaybook limits the playbook of a call, in bytes.
const maxPlaybook = 512 << 10

// planApply returns a run of exactly this playbook on exactly this host.
func (r *Runner) planApply(h Host, playbook string, timeout time.Duration) (bailey.Run, error) {
	switch {
	case !h.Apply:
		return nil, bailey.Denied.Errorf("an operator runs: bailey source prepare "+h.Name+" --apply",
			"the host %s is not prepared for playbooks", h.Name)
	case playbook == "" || len(playbook) > maxPlaybook:
		return nil, bailey.Invalid.Errorf("export a smaller difference", "a playbook has 1 to %d KiB", maxPlaybook>>10)
	}
	if timeout == 0 {
		timeout = bailey.DefaultTimeout
	}
	a := &applyRun{runner: r, host: h, playbook: []byte(playbook), timeout: timeout}
	a.digest = hostapply.Digest(a.playbook)
	var text strings.Builder
	fmt.Fprintf(&text, "bailey host plan 1\ncertificate host %q principal %q\n", h.Name, hostapply.Name)
	lines := []string{"", "certificate"}
	for _, l := range h.Labels {
		fmt.Fprintf(&text, "label %q\n", l)
		lines = append(lines, "")
	}
	fmt.Fprintf(&text, "playbook sha256 %s bytes %d\n", a.digest, len(playbook))
	sum := sha256.Sum256([]byte(text.String()))
	a.cage = bailey.Cage{Kind: "host", Layers: []string{"approved-playbook", "certificate", hostapply.Name}, Labels: h.Labels,
		Absent: []string{"landlock", "seccomp", "rlimits"}, // it changes the host
		Plan:   text.String(), PlanLayers: append(lines, "approved-playbook"), PlanDigest: hex.EncodeToString(sum[:])}
	return a, nil
}

// applyRun is a planned playbook.
type applyRun struct {
	bailey.PlainRun
	runner   *Runner
	host     Host
	playbook []byte
	digest   string
	timeout  time.Duration
	cage     bailey.Cage
}

// Describe names what the approval binds: the digest and the host.
func (a *applyRun) Describe() (check []string, text string) {
	return []string{"sha256sum"}, fmt.Sprintf("host %s\nsha256 %s\nlines %d\n", a.host.Name, a.digest, bytes.Count(a.playbook, []byte("\n")))
}

// Cage returns the layers.
func (a *applyRun) Cage() bailey.Cage { return a.cage }

// Close releases nothing.
func (a *applyRun) Close() error { return nil }

// Start applies the playbook once. The host's report of each task is the output.
func (a *applyRun) Start(ctx context.Context, _ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	fail := func(err error) (bailey.Exit, error) { return bailey.Exit{Code: bailey.NeverRan}, err }
	access, err := a.runner.Access()
	if err != nil {
		return fail(err)
	}
	pinned, err := a.host.Pinned()
	if err != nil {
		return fail(err)
	}
	res, err := access.applyPlaybook(ctx, a.host, pinned, a.playbook, remote.Command{Stdout: orDiscard(s.Stdout), Stderr: orDiscard(s.Stderr), Timeout: a.timeout})
	switch {
	case err != nil && !res.Sent:
		return fail(err)
	case err != nil:
		return bailey.Exit{Code: 255, Login: res.Login}, bailey.Unavailable.Wrapf(err, "look at the host: a playbook that has begun continues there",
			"the report of %s did not arrive", a.host.Name)
	}
	return bailey.Exit{Code: res.Code, Login: res.Login}, nil
}

// applyPlaybook logs in with a certificate for this playbook on this host, once.
func (a *Access) applyPlaybook(ctx context.Context, h Host, pinned []ssh.PublicKey, playbook []byte, c remote.Command) (remote.Result, error) {
	var call [16]byte
	if _, err := rand.Read(call[:]); err != nil {
		return remote.Result{}, bailey.Unavailable.Wrap(err, "cannot read random bytes", "check the random source of this machine")
	}
	if len(pinned) == 0 {
		return remote.Result{}, bailey.Denied.Errorf("prepare the host again", "the host %s has no pinned key", h.Name)
	}
	request := hostapply.Request{SHA256: hostapply.Digest(playbook), Host: hostapply.HostID(pinned[0].Marshal()),
		Call: hex.EncodeToString(call[:]), Until: time.Now().Add(applyWindow)}
	c.Line, c.Stdin = hostapply.Name, bytes.NewReader(playbook)
	return a.sendPlaybook(ctx, h, pinned, request, c)
}

// sendPlaybook sends a command over a connection of its own, with a certificate that carries the request.
func (a *Access) sendPlaybook(ctx context.Context, h Host, pinned []ssh.PublicKey, r hostapply.Request, c remote.Command) (remote.Result, error) {
	route, err := remote.Resolver{Config: h.SSHConfig}.Route(ctx, h.Name)
	if err != nil {
		return remote.Result{}, err
	}
	name := sshca.PathName("apply " + h.Name + " " + r.Call)
	defer a.Credentials.Remove(context.WithoutCancel(ctx), sshca.Apply, name)
	login, _, err := a.logIn(ctx, h, pinned, hostapply.Name, sshca.Target{Principal: sshca.Apply, Name: name,
		ShellOptions: r.Options(), Lifetime: applyWindow})
	if err != nil {
		return remote.Result{}, err
	}
	client, err := a.Pool.Dialer.Dial(ctx, route, login)
	if err != nil {
		return remote.Result{}, err
	}
	defer client.Close()
	res, err := client.Run(ctx, c)
	res.Login = login.Text
	return res, err
}

// TryApply logs in as a playbook would, with an empty one, which the host refuses before it changes anything.
func (a *Access) TryApply(ctx context.Context, h Host, pinned []ssh.PublicKey) error {
	var out, log bytes.Buffer
	res, err := a.applyPlaybook(ctx, h, pinned, nil, remote.Command{Stdout: &out, Stderr: &log, Timeout: time.Minute})
	if err == nil && (res.Code != hostapply.ExitRefused || !strings.Contains(log.String(), "neither a playbook")) {
		err = bailey.Unavailable.Errorf("prepare the host again: bailey source prepare "+h.Name+" --apply",
			"%s of %s does not answer as it must: %.500s", hostapply.Name, h.Name, strings.TrimSpace(log.String()))
	}
	return err
}
