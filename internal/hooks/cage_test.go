package hooks

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/egress"
	"bailey/internal/jail"
	"bailey/internal/ktest"
)

// In each of these tests a layer must stop an attack. Then hooks.json removes the layer, and the attack must succeed.

// says asks a hook that reports on standard error, and returns the report.
func (y *yard) says(t *testing.T, h hook.Hook) string {
	t.Helper()
	_, a := y.try(t, h)
	return a.Reason
}

func of(kind string, all []Warning) []Warning {
	return slices.DeleteFunc(slices.Clone(all), func(w Warning) bool { return w.Kind != kind })
}

func TestEnvironmentIsListed(t *testing.T) {
	y := newYard(t)
	t.Setenv("BAILEY_HOOKS_TEST", "the gateway's own")
	h := y.shell(t, `echo "=$SECRET=$LISTED=$BAILEY_HOOKS_TEST=$HOME=$USER=$PATH" >&2; exit 2`)
	h.Env = []string{"LISTED", "UNSET"}
	if got, want := y.says(t, h), "==passes==/home/bailey=bailey="+searchPath; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	h.Env = []string{"SECRET"}
	if got, want := y.says(t, h), "=of the user's==="; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	h.Unsandboxed, h.Env = true, []string{"LISTED"} // even without a cage, a hook must get only listed variables
	if got, want := y.says(t, h), "==passes=="+y.home+"=somebody="+searchPath; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFilesAreOutOfReach(t *testing.T) {
	y := newYard(t)
	leak := filepath.Join(y.home, "leak-from-hook.txt")
	h := y.shell(t, "echo leaked > "+leak+" && exit 2; exit 3")
	if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit == 2 {
		t.Errorf("%+v", a)
	}
	if _, err := os.Stat(leak); err == nil {
		t.Error("a hook wrote into the home")
	}
	h.Unsandboxed = true
	if _, a := y.try(t, h); a.Exit != 2 || a.Status != Disabled {
		t.Errorf("%+v", a)
	}
	if text, err := os.ReadFile(leak); err != nil || string(text) != "leaked\n" {
		t.Errorf("without the cage: %q %v", text, err)
	}
}

func TestReadsAreListed(t *testing.T) {
	y := newYard(t)
	notes := filepath.Join(y.home, "notes")
	if err := os.Mkdir(notes, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"notes/a", ".ssh/key", "hooks/beside"} {
		if err := os.WriteFile(filepath.Join(y.home, file), []byte("text of "+file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := y.shell(t, fmt.Sprintf("cat %s/notes/a %[1]s/.ssh/key %[1]s/hooks/beside >&2; exit 2", y.home))
	got := y.says(t, h)
	if strings.Contains(got, "text of notes") || strings.Contains(got, "text of .ssh") || !strings.Contains(got, "text of hooks/beside") {
		t.Errorf("%q", got)
	}
	h.Read = []string{notes}
	if got := y.says(t, h); !strings.Contains(got, "text of notes/a") {
		t.Errorf("with notes: %q", got)
	}
	h.Read = []string{y.home}
	if got := y.says(t, h); !strings.Contains(got, "text of notes/a") || strings.Contains(got, "text of .ssh") {
		t.Errorf("with the home: %q", got)
	}
	h.Read = []string{filepath.Join(y.home, ".ssh")}
	if got := y.says(t, h); !strings.Contains(got, "masked") {
		t.Errorf("with what is masked: %q", got)
	}
	h.Read, h.Unsandboxed = nil, true
	if got := y.says(t, h); !strings.Contains(got, "text of .ssh") {
		t.Errorf("without the cage: %q", got)
	}
}

func TestWritesAreListed(t *testing.T) {
	y := newYard(t)
	state := filepath.Join(y.home, "state")
	if os.Geteuid() != 0 {
		os.Chmod(state, 0o700)
	}
	h := y.shell(t, "echo x > /tmp/x && echo x > /dev/null && echo x >> "+state+"/log && exit 0; exit 3")
	if o, _ := y.try(t, h); o.Effect != hook.Blocked {
		t.Errorf("without a line in hooks.json: %+v", o)
	}
	h.Write = []string{state}
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("%+v %+v", o, a)
	}
	if _, err := os.Stat(filepath.Join(state, "log")); err != nil {
		t.Error(err)
	}
	h.Write = []string{filepath.Join(y.home, "nowhere")}
	if o, _ := y.try(t, h); o.Effect != hook.Blocked || !strings.Contains(o.Reason, "does not exist") {
		t.Errorf("%+v", o)
	}
	h.Write = []string{filepath.Dir(h.Argv[0])}
	if o, _ := y.try(t, h); o.Effect != hook.Blocked {
		t.Errorf("a hook may write itself: %+v", o)
	}
}

// TestOwnRoom checks that files that any hook may write are gone after it.
func TestOwnRoom(t *testing.T) {
	y := newYard(t)
	name := filepath.Base(y.home) + "-note"
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{"sh", "-c", "set -e; for d in /tmp /var/tmp $HOME; do test ! -e $d/NAME; done; for d in /tmp /var/tmp $HOME; do echo text > $d/NAME; done; head -c 9 /dev/urandom /dev/zero > /dev/null; exit 2"}, Timeout: hook.DefaultTimeout}
	h.Argv[2] = strings.ReplaceAll(h.Argv[2], "NAME", name)
	for range 2 {
		if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != 2 || o.Message != "" {
			t.Errorf("%+v %+v", o, a)
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is the host's", dir)
		}
	}
}

// TestFolderIsItsOwn checks that a hook is refused if its program lies among other files of a user: the folder would
// show them.
func TestFolderIsItsOwn(t *testing.T) {
	y := newYard(t)
	for _, dir := range []string{y.home, filepath.Dir(y.home)} {
		h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{filepath.Join(dir, "hook-"+filepath.Base(y.home))}, Timeout: hook.DefaultTimeout}
		if err := os.WriteFile(h.Argv[0], []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(h.Argv[0])
		if o, a := y.try(t, h); o.Effect != hook.Blocked || !strings.Contains(o.Reason, "contains "+y.home) || !strings.Contains(a.Hint, "folder of its own") {
			t.Errorf("%+v", o)
		}
	}
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{"sh", "-c", "ls " + y.home + " >&2; exit 2"}, Timeout: hook.DefaultTimeout}
	if o, a := y.try(t, h); o.Effect != hook.Blocked || !strings.Contains(o.Reason, "No such file") {
		t.Errorf("a bare name has a folder: %+v %+v", o, a)
	}
}

// TestInterpreters checks that the host's interpreters work in the cage.
func TestInterpreters(t *testing.T) {
	y := newYard(t)
	for name, h := range map[string]struct{ first, text string }{
		"python3": {"#!/usr/bin/env python3", "import json, ssl, subprocess, sys, tempfile, urllib.request\nsubprocess.check_output(['sed', 's/a/b/'], stdin=subprocess.DEVNULL)\njson.load(sys.stdin)\ntempfile.TemporaryFile()\njson.dump({'systemMessage': 'works'}, sys.stdout)\n"},
		"sh":      {"#!/bin/sh", "grep -q toolName && printf 'x' | sed 's/x/{\"systemMessage\": \"works\"}/'\n"},
		"awk":     {"#!/bin/sh", `awk 'END { print "{\"systemMessage\": \"works\"}" }'` + "\n"},
		"perl":    {"#!/usr/bin/perl", "use strict; use warnings; local $/; my $f = <STDIN>; print '{\"systemMessage\": \"works\"}';\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ktest.Require(t, name)
			path := y.script(t, name, h.first+"\n"+h.text)
			if o, a := y.try(t, hook.Hook{Event: hook.OnPreToolUse, Argv: []string{path}, Timeout: hook.DefaultTimeout}); o.Effect != hook.Kept || o.Message != "works" {
				t.Errorf("%+v %+v", o, a)
			}
		})
	}
}

// TestTime checks that a hook that hangs gets SIGTERM and is then killed. If it has enough time, it must run until the
// caller is gone.
func TestTime(t *testing.T) {
	var y *yard
	var h hook.Hook
	var state, word string
	inMidst(t, func(timeout time.Duration) bool { // the timeout is also the time between SIGTERM and SIGKILL
		y = newYardWithin(t, timeout)
		state, word = filepath.Join(y.home, "state"), "hangs-"+filepath.Base(y.home)
		h = y.shell(t, fmt.Sprintf("trap 'echo asked > %s/asked' TERM; echo > %[1]s/began; while :; do sh -c 'sleep 0.2; :' %s; done", state, word))
		h.Write, h.Timeout = []string{state}, timeout
		o, a := y.try(t, h)
		if _, err := os.Stat(filepath.Join(state, "asked")); err != nil { // no SIGTERM before SIGKILL
			return false
		}
		if o.Effect != hook.Blocked || !strings.Contains(o.Reason, "it timed out") {
			t.Errorf("%+v %+v", o, a)
		}
		if left := alive(t, word); len(left) > 0 {
			t.Errorf("%v live on", left)
		}
		return true
	})
	os.Remove(filepath.Join(state, "began"))
	h.Timeout = hook.MaxTimeout
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	y.hooks = []hook.Hook{h, h}
	answer, all := make(chan hook.Outcome, 1), make(chan []Asked, 1)
	go func() {
		o, a := y.Ask(ctx, pre(nil))
		answer <- o
		all <- a
	}()
	comes(t, filepath.Join(state, "began"))
	select {
	case o := <-answer:
		t.Fatalf("it was ended although it had time: %+v", o)
	default:
	}
	cancel()
	if o, a := <-answer, <-all; o.Effect != hook.Blocked || o.Event != nil || len(a) != 1 {
		t.Errorf("the call ended: %+v %+v", o, a)
	}
	if left := alive(t, word); len(left) > 0 {
		t.Errorf("%v live on", left)
	}
}

// TestBufferIsCapped checks that at most MaxFrame bytes of each stream are kept. Without the limit, the same stream
// must be complete.
func TestBufferIsCapped(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	const size = 100 << 20
	h := y.shell(t, fmt.Sprintf("head -c %d /dev/zero; head -c %[1]d /dev/zero >&2", size))
	a := &Asked{}
	p := <-y.planNext(t.Context(), pre(nil), []plannedHook{{Hook: h}})
	ran := p.runHook(t.Context(), pre(nil), a)
	if len(ran.Stdout) != hook.MaxFrame || len(ran.Stderr) != hook.MaxFrame || !ran.Truncated || ran.Exit != 0 {
		t.Errorf("%d and %d bytes were kept, truncated %v, code %d", len(ran.Stdout), len(ran.Stderr), ran.Truncated, ran.Exit)
	}
	if len(of("hook.buffer", a.Warning)) != 2 {
		t.Errorf("%+v", a.Warning)
	}
	r, lent, err := y.planHook(t.Context(), pre(nil), h, a)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all bytes.Buffer
	if _, err := r.Start(t.Context(), lent, bailey.Streams{Stdout: &all}); err != nil || all.Len() != size {
		t.Errorf("without the cap: %d bytes, %v", all.Len(), err)
	}
}

func TestSystemCallsAreFiltered(t *testing.T) {
	ktest.Require(t, "unshare")
	y := newYard(t)
	h := y.shell(t, "unshare -Ur true && exit 0; exit 3")
	if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != 3 {
		t.Errorf("%+v", a)
	}
	h.Unsandboxed = true
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("without the cage: %+v", a)
	}
}

// greeter accepts connections, and sends hello on each.
func greeter(t *testing.T) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			fmt.Fprint(c, "hello")
			c.Close()
		}
	}()
	return ln.Addr().String()
}

// TestNetworkIsListed checks that a hook has no socket if hooks.json lists no hosts, and otherwise reaches only those.
func TestNetworkIsListed(t *testing.T) {
	ktest.Require(t, "python3")
	y := newYard(t)
	named, other := greeter(t), greeter(t)
	h := hook.Hook{Event: hook.OnPreToolUse, Timeout: hook.DefaultTimeout}
	h.Argv = []string{y.script(t, "dials", `#!/usr/bin/env python3
import socket, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port))) as s:
    sys.exit(0 if s.recv(5) == b"hello" else 4)
`), named}
	o, a := y.try(t, h)
	if o.Effect != hook.Blocked || a.Exit != 1 || !strings.Contains(o.Hint, `"network": {"allow"`) {
		t.Errorf("without a network: %+v %+v", o, a)
	}
	if w := of("hook.network", a.Warning); len(w) != 1 || w[0].Hint != cureNetwork {
		t.Errorf("it tried, and nobody is told of the cure: %+v", a.Warning)
	}
	host, port, _ := net.SplitHostPort(named)
	at := bailey.Endpoint{Host: host, Private: true, Plain: true}
	fmt.Sscan(port, &at.Port)
	h.Network = []bailey.Endpoint{at}
	if o, _ := y.try(t, h); o.Effect != hook.Blocked || !strings.Contains(o.Reason, "have no network access here") {
		t.Errorf("where nobody makes networks: %+v", o)
	}
	y.Plan = egress.Plan
	y.Open = func(n *bailey.Network) (bailey.Way, error) { return egress.NewWay(egress.WayConfig{Network: n}) }
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("with the host that it names: %+v %+v", o, a)
	}
	h.Argv[1] = other
	if o, a := y.try(t, h); o.Effect != hook.Blocked {
		t.Errorf("another host: %+v", a)
	}
	h.Network, h.Unsandboxed = nil, true
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("without the cage: %+v", a)
	}
}

// TestRefusalsAreTold checks that the proxy's refusal becomes a warning with the target.
func TestRefusalsAreTold(t *testing.T) {
	ktest.Require(t, "python3")
	y := newYard(t)
	y.Plan = egress.Plan
	y.Open = func(n *bailey.Network) (bailey.Way, error) { return egress.NewWay(egress.WayConfig{Network: n}) }
	h := hook.Hook{Event: hook.OnPreToolUse, Timeout: hook.DefaultTimeout, Network: []bailey.Endpoint{{Host: "named.example", Port: 443}}}
	h.Argv = []string{y.script(t, "fetches", "#!/usr/bin/env python3\nimport urllib.request\nurllib.request.urlopen('https://other.example/')\n")}
	_, a := y.try(t, h)
	if w := of("hook.network", a.Warning); len(w) != 1 || !strings.Contains(w[0].Text, "egress to other.example:443 is not allowed") {
		t.Errorf("%+v", a)
	}
}

// TestNothingIsLeft checks that all processes of a hook end with it. Without the cage, one in a new session must
// survive.
func TestNothingIsLeft(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "setsid")
	y := newYard(t)
	word := "stays-" + filepath.Base(y.home)
	state := filepath.Join(y.home, "state")
	h := y.shell(t, fmt.Sprintf("rm -f %s/began; setsid sh -c 'echo > %[1]s/began; while :; do sleep 0.2; done' %s & until [ -e %[1]s/began ]; do sleep 0.05; done; exit 0", state, word))
	h.Write = []string{state}
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("%+v", a)
	}
	if left := alive(t, word); len(left) > 0 {
		t.Errorf("%v live on", left)
	}
	h.Unsandboxed = true
	if o, a := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("%+v", a)
	}
	left := alive(t, word)
	if len(left) == 0 {
		t.Error("without the cage it ended too: this test sees nothing")
	}
	for _, pid := range left {
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
}

// TestNoCageNoHook checks that a hook is not started if it must have a cage and gets none.
func TestNoCageNoHook(t *testing.T) {
	y := newYard(t)
	mark := filepath.Join(y.home, "state", "ran")
	h := y.shell(t, "echo > "+mark)
	y.Cages = wallless{y.Cages}
	if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != bailey.NeverRan || !strings.Contains(o.Reason, "no tree today") {
		t.Errorf("a cage that is not what a hook's has to be: %+v %+v", o, a)
	}
	for name, cages := range map[string]bailey.Runner{"no runner": nil, "a runner without cages": uncaged{}} {
		y.Cages = cages
		for f, want := range map[hook.OnFailure]hook.Effect{"": hook.Blocked, hook.Pass: hook.Failed} {
			h.OnFailure = f
			o, a := y.try(t, h)
			if o.Effect != want || a.Status != PlatformUnsupported || a.Exit != bailey.NeverRan || !strings.Contains(o.Reason, "no jail") {
				t.Errorf("%s, onFailure %q: %+v %+v", name, f, o, a)
			}
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was started")
	}
	y.Bare, h.Unsandboxed = nil, true
	if o, _ := y.try(t, h); !strings.Contains(o.Reason, "not started here") {
		t.Errorf("%+v", o)
	}
}

// uncaged is the runner of a platform that has no cages and reports so.
type uncaged struct{ jail.Uncaged }

func (u uncaged) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	job.Wall, job.Read = nil, nil
	return u.Uncaged.Plan(ctx, job)
}

// wallless is a host with namespaces that cannot show trees for another reason.
type wallless struct{ bailey.Runner }

func (w wallless) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if job.Wall != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no tree today"}
	}
	return w.Runner.Plan(ctx, job)
}

// TestHeld checks the status that each kind of cage gives.
func TestHeld(t *testing.T) {
	for want, cages := range map[Status][]bailey.Cage{
		FullyEnforced:       {{Kind: "full", Enforced: true}},
		PartiallyEnforced:   {{Kind: "landlock", Enforced: true}, {Kind: "full", Enforced: true, Absent: []string{"cgroup"}}, {Kind: "full", Enforced: true, Lacks: []string{"landlock tcp"}}},
		PlatformUnsupported: {{Kind: "none"}, {Kind: "seatbelt"}, {}},
	} {
		for _, c := range cages {
			if got := cageStatus(c); got != want {
				t.Errorf("%+v is %s, want %s", c, got, want)
			}
		}
	}
}

var _ bailey.Runner = (*jail.Jail)(nil)
