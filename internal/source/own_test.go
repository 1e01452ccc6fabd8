//go:build linux

package source

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/readonlyshell"
)

// ownText is a file with a command that an operator adds. sub is its accepted subcommand.
func ownText(sub string) string {
	return `{"commands":[{"program":"/usr/local/bin/appctl","stops":"purge","subcommands":["` + sub + `"],"options":[{"name":"-v"}]}]}` + "\n"
}

// ownBench is a host with a program that an operator adds to the commands that only read.
type ownBench struct {
	*bench
	t        *testing.T
	registry *Registry
	runner   *Runner
}

func newOwnBench(t *testing.T) *ownBench {
	b := &ownBench{bench: newBench(t), t: t, registry: &Registry{Dir: t.TempDir()}}
	b.runner = &Runner{Registry: b.registry, Access: func() (*Access, error) { return b.access, nil }}
	b.Put(t, "/usr/local/bin/appctl", []byte("#!/bin/sh\necho app \"$@\"\ntouch /tmp/own 2>/dev/null || echo no write\n"), 0o755)
	return b
}

// write replaces the file of the operator; without a text it removes it.
func (b *ownBench) write(text string) {
	b.t.Helper()
	name := filepath.Join(b.registry.Dir, OwnFile)
	err := os.WriteFile(name, []byte(text), 0o600)
	if text == "" {
		err = os.Remove(name)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// prepare prepares the host with the file of the operator and returns the result of the step of that name.
func (b *ownBench) prepare(step string, fail error) string {
	b.t.Helper()
	p := b.preparation("")
	var err error
	if p.Own, err = b.registry.OwnCommands(); err != nil {
		b.t.Fatal(err)
	}
	login := p.Login
	p.Login = func(ctx context.Context, pinned []ssh.PublicKey) (readonlyshell.Status, error) {
		s, err := login(ctx, pinned)
		return s, errors.Join(err, fail)
	}
	h, err := p.Run(b.t.Context())
	if fail == nil {
		if err != nil {
			b.t.Fatal(err)
		}
		if err := b.registry.Put(h); err != nil {
			b.t.Fatal(err)
		}
	} else if !errors.Is(err, fail) {
		b.t.Fatal(err)
	}
	for _, s := range b.steps {
		if result, ok := strings.CutPrefix(s, step+" "); ok {
			return result
		}
	}
	return ""
}

// run runs a line and returns its output, its errors, and whether the receipt is marked.
func (b *ownBench) run(line string) (out, log string, marked bool) {
	b.t.Helper()
	run, err := b.runner.Plan(b.t.Context(), bailey.Job{Args: []string{"run", "web", line}, Timeout: time.Minute})
	if err != nil {
		var e *bailey.Error
		errors.As(err, &e)
		return "", err.Error() + "; " + e.Hint, false
	}
	var stdout, stderr bytes.Buffer
	if _, err := run.Start(b.t.Context(), bailey.Lent{}, bailey.Streams{Stdout: &stdout, Stderr: &stderr}); err != nil {
		b.t.Fatal(err)
	}
	marked = slices.Contains(run.Cage().Layers, ownMark)
	if marked != strings.Contains(run.Cage().Plan, `own-command ["appctl"`) {
		b.t.Errorf("%s: %+v", line, run.Cage())
	}
	return stdout.String(), stderr.String(), marked
}

// TestOwnCommands brings the commands of an operator to a real host. Certificate and login shell must agree on their file,
// receipts mark them, and a removal leaves nothing.
func TestOwnCommands(t *testing.T) {
	b := newOwnBench(t)
	before := b.state(t)
	b.write(ownText("status"))
	if got := b.prepare("install_commands", nil); got != "changed" {
		t.Fatalf("%q %q", got, b.steps)
	}
	if got := b.Sh(t, "cd /etc/bailey-readonly && stat -c '%a %U %G' . commands.json && cat commands.json"); got != "755 root root\n644 root root\n"+ownText("status") {
		t.Errorf("%q", got)
	}
	out, log, marked := b.run("appctl status -v | cat")
	if out != "app status -v\nno write\n" || !marked {
		t.Errorf("%q %q %t", out, log, marked)
	}
	if out, log, marked := b.run("id -un"); out != "bailey-readonly\n" || marked {
		t.Errorf("%q %q %t", out, log, marked)
	}
	refuses := func(line, says string) {
		t.Helper()
		if out, log, _ := b.run(line); out != "" || !strings.Contains(log, says) {
			t.Errorf("%s: %q %q, want %q", line, out, log, says)
		}
	}
	refuses("appctl purge", `the subcommand "purge" of appctl is not in the read-only set`)
	// The file on the host differs from that of the gateway.
	b.Sh(t, "sed -i s/status/purge/ /etc/bailey-readonly/commands.json")
	refuses("appctl status", "prepares the host again: bailey source prepare")
	if out, _, _ := b.run("id -un"); out != "bailey-readonly\n" {
		t.Errorf("another command: %q", out)
	}
	b.Sh(t, "mv /etc/bailey-readonly/commands.json /etc/bailey-readonly/away")
	refuses("appctl status", "it does not exist")
	b.Sh(t, "rm /etc/bailey-readonly/away")
	// The file of the gateway has changed, and the host is prepared again.
	b.write(ownText("show"))
	refuses("appctl show", "prepare it again")
	if got := b.prepare("install_commands", nil); got != "changed" {
		t.Errorf("%q %q", got, b.steps)
	}
	if got := b.prepare("install_commands", nil); got != "unchanged" {
		t.Errorf("the second time: %q", got)
	}
	if out, log, _ := b.run("appctl show"); out != "app show\nno write\n" {
		t.Errorf("%q %q", out, log)
	}
	refuses("appctl status", "is not in the read-only set")
	b.checkOwnUndone()
	if _, err := Unprepare(t.Context(), b.person); err != nil {
		t.Fatal(err)
	}
	if after := b.state(t); after != before {
		t.Errorf("after the removal:\n%s", changes(before, after))
	}
}

// checkOwnUndone checks that a failed preparation leaves the commands as they were, whether it replaces or removes them,
// and that one without a file removes them.
func (b *ownBench) checkOwnUndone() {
	b.t.Helper()
	prepared := b.state(b.t)
	failure := errors.New("a failed login")
	b.write(ownText("other"))
	b.prepare("", failure)
	if again := b.state(b.t); again != prepared {
		b.t.Errorf("a replacement that failed:\n%s", changes(prepared, again))
	}
	b.write("")
	if got := b.prepare("remove_commands", failure); got != "changed" {
		b.t.Errorf("%q %q", got, b.steps)
	}
	if again := b.state(b.t); again != prepared {
		b.t.Errorf("a removal that failed:\n%s", changes(prepared, again))
	}
	if got := b.prepare("remove_commands", nil); got != "changed" {
		b.t.Errorf("%q %q", got, b.steps)
	}
	if got := b.Sh(b.t, "ls /etc/bailey-readonly"); got != "" {
		b.t.Errorf("%q", got)
	}
	if _, log, _ := b.run("appctl show"); !strings.Contains(log, "is not in the read-only set") {
		b.t.Errorf("%q", log)
	}
}

// TestOwnFile checks that a file that is damaged, a link, or open to others stops every line.
func TestOwnFile(t *testing.T) {
	r := &Registry{Dir: t.TempDir()}
	name := filepath.Join(r.Dir, OwnFile)
	if own, err := r.OwnCommands(); err != nil || own.Digest != "" {
		t.Errorf("without a file: %+v %v", own, err)
	}
	for says, text := range map[string]string{"line 1: it is not JSON": "", "commands[0].program:": `{"commands":[{"program":"sh","stops":"x"}]}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.OwnCommands(); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(name, []byte(ownText("status")), 0o600); err != nil {
		t.Fatal(err)
	}
	if own, err := r.OwnCommands(); err != nil || own.listNames() != "/usr/local/bin/appctl" {
		t.Errorf("%+v %v", own, err)
	}
	if err := os.Chmod(name, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := r.OwnCommands(); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("mode 0620: %v", err)
	}
	if err := errors.Join(os.Rename(name, name+".1"), os.Symlink(name+".1", name)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.OwnCommands(); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("a link: %v", err)
	}
}
