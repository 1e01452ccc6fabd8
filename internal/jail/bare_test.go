//go:build linux || darwin

package jail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
)

// These tests start harmless programs of the system without a cage, as macOS and Windows would.

var systemBare = bare{path: "/usr/bin:/bin"}

// ranBare is the result of a run.
type ranBare struct {
	exit           bailey.Exit
	stdout, stderr bytes.Buffer
	took           time.Duration
	err            error
}

func runBare(t *testing.T, ctx context.Context, b *bare, job bailey.Job, lent []string, stdin string) *ranBare {
	t.Helper()
	planned, err := b.Plan(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	r := &ranBare{}
	s := bailey.Streams{Stdout: &r.stdout, Stderr: &r.stderr}
	if stdin != "" {
		s.Stdin = strings.NewReader(stdin)
	}
	begun := time.Now()
	r.exit, r.err = planned.Start(ctx, bailey.Lent{Env: lent}, s)
	r.took = time.Since(begun)
	return r
}

// inMidst makes a call with a timeout that should expire while the tool runs. If the tool had not come far enough, as
// on a busy machine, it doubles the timeout.
func inMidst(t testing.TB, call func(timeout time.Duration) (begun bool)) {
	t.Helper()
	for timeout := 150 * time.Millisecond; timeout < 20*time.Second; timeout *= 2 {
		if call(timeout) {
			return
		}
	}
	t.Error("no tool came as far before its time was up")
}

// short is a grace for tools that ignore SIGTERM, gentle for those that end at it.
const short, gentle = 100 * time.Millisecond, 20 * time.Second

func shell(script string) bailey.Job {
	return bailey.Job{Command: "sh", Args: []string{"-c", script}}
}

func TestBareRuns(t *testing.T) {
	ctx := context.Background()
	args := []string{"%s|", "a b", `"`, "$(id)", "*", "", "\\"}
	r := runBare(t, ctx, &systemBare, bailey.Job{Command: "printf", Args: args}, nil, "")
	if want := strings.Join(args[1:], "|") + "|"; r.err != nil || r.exit != (bailey.Exit{}) || r.stdout.String() != want {
		t.Errorf("%+v, %v: %q, want %q", r.exit, r.err, r.stdout.String(), want)
	}
	if r := runBare(t, ctx, &systemBare, bailey.Job{Command: "cat"}, nil, ""); r.err != nil || r.stdout.Len() != 0 {
		t.Errorf("without stdin cat reads %q, %v", r.stdout.String(), r.err)
	}
	if r := runBare(t, ctx, &systemBare, bailey.Job{Command: "cat"}, nil, "typed"); r.err != nil || r.stdout.String() != "typed" {
		t.Errorf("cat gives back %q, %v", r.stdout.String(), r.err)
	}
	for script, want := range map[string]int{"exit 7": 7, "kill -9 $$": 137, "echo x >&2; exit 1": 1} {
		if r := runBare(t, ctx, &systemBare, shell(script), nil, ""); r.err != nil || r.exit.Code != want {
			t.Errorf("%s: %+v, %v", script, r.exit, r.err)
		}
	}
}

// TestBareCage checks that the receipt has no field for missing protections.
func TestBareCage(t *testing.T) {
	planned, err := systemBare.Plan(context.Background(), bailey.Job{Command: "cat"})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	c := planned.Cage()
	file, err := os.ReadFile(c.Binary)
	sum := sha256.Sum256(file)
	if err != nil || c.BinaryDigest != hex.EncodeToString(sum[:]) {
		t.Errorf("the digest of %s is %s, %v", c.Binary, c.BinaryDigest, err)
	}
	text, err := json.Marshal(c)
	if err != nil || c.Kind != "none" || c.Enforced || bytes.Contains(text, []byte("layers")) || bytes.Contains(text, []byte("planDigest")) || bytes.Contains(text, []byte("programs")) ||
		!bytes.Contains(text, []byte(`"sandboxEnforced":false`)) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestBareEnvironment(t *testing.T) {
	t.Setenv("BAILEY_TEST_OUTSIDE", "seen")
	t.Setenv("PATH", "/nowhere")
	job := bailey.Job{Command: "env", Env: []string{"GIT_PAGER=cat", "TZ=Europe/Berlin"}, EnvNames: []string{"TOKEN"}}
	r := runBare(t, context.Background(), &systemBare, job, []string{"TOKEN=t=1"}, "")
	got := map[string]string{}
	for line := range strings.Lines(r.stdout.String()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	home := got["HOME"]
	delete(got, "HOME")
	want := map[string]string{"PATH": "/usr/bin:/bin", "USER": "bailey", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "Europe/Berlin", "GIT_PAGER": "cat", "TOKEN": "t=1"}
	if a, b := must(json.Marshal(got)), must(json.Marshal(want)); r.err != nil || !bytes.Equal(a, b) {
		t.Errorf("%v, %v, want %v", got, r.err, want)
	}
	if _, err := os.Lstat(home); !filepath.IsAbs(home) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("HOME %q stays: %v", home, err)
	}
	r = runBare(t, context.Background(), &systemBare, shell(`pwd; echo "$HOME"; ls -A; echo made > "$HOME/file"`), nil, "")
	if w := strings.Fields(r.stdout.String()); r.err != nil || r.exit.Code != 0 || len(w) != 2 || w[0] != w[1] {
		t.Errorf("HOME is not where a call starts, empty and its own: %q, %+v, %v", r.stdout.String(), r.exit, r.err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestBareInheritsNothing checks that the program inherits no descriptor of the gateway, even one left open by the
// gateway's parent.
func TestBareInheritsNothing(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	loose, err := syscall.Dup(int(f.Fd())) // without close-on-exec (dup(2))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(loose)
	r := runBare(t, context.Background(), &systemBare, shell(`for fd in /dev/fd/*; do echo "${fd##*/}"; done`), nil, "")
	if slices.Contains(strings.Fields(r.stdout.String()), strconv.Itoa(loose)) || r.err != nil || r.stdout.Len() == 0 {
		t.Errorf("descriptor %d is open in %q, %v", loose, r.stdout.String(), r.err)
	}
	r = runBare(t, context.Background(), &systemBare, shell(`ps -o pid=,pgid=,tty= -p $$`), nil, "")
	if w := strings.Fields(r.stdout.String()); len(w) != 3 || w[0] != w[1] || strings.Contains(w[2], "pts") || strings.Contains(w[2], "ttys") {
		t.Errorf("process, group and terminal are %q, %v", r.stdout.String(), r.err)
	}
}

func TestBareTimeout(t *testing.T) {
	hasty, patient := systemBare, systemBare
	hasty.grace, patient.grace = short, time.Minute
	meek := shell("sleep 600")
	meek.Timeout = 100 * time.Millisecond
	// ends by itself: if it were killed, the code would be 137
	if r := runBare(t, t.Context(), &patient, meek, nil, ""); r.err != nil || r.exit != (bailey.Exit{Code: 143, TimedOut: true}) || r.took > time.Minute {
		t.Errorf("a program that heeds SIGTERM: %+v, %v after %v", r.exit, r.err, r.took)
	}
	inMidst(t, func(timeout time.Duration) bool {
		stubborn := shell("trap '' TERM; echo up; sleep 600 & wait; wait; wait")
		stubborn.Timeout = timeout
		r := runBare(t, t.Context(), &hasty, stubborn, nil, "")
		if r.stdout.Len() == 0 {
			return false
		}
		if r.err != nil || r.exit != (bailey.Exit{Code: 137, TimedOut: true}) || r.took < timeout+short || r.took > time.Minute {
			t.Errorf("one that does not: %+v, %v after %v", r.exit, r.err, r.took)
		}
		return true
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	gone := errors.New("the caller disconnected")
	planned, err := patient.Plan(ctx, shell("trap '' TERM; echo up; sleep 600"))
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	begin := time.Now()
	// the trap is set by then
	exit, err := planned.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: onceUp(func() { cancel(gone) })})
	if took := time.Since(begin); err != gone || exit.Code != 137 || took > time.Minute {
		t.Errorf("cancelled: %+v, %v after %v", exit, err, took)
	}
}

// onceUp is called when a program writes.
type onceUp func()

func (f onceUp) Write(b []byte) (int, error) { f(); return len(b), nil }

// TestBareLeavesNothing checks that a program's processes end with it if they stay in its group.
func TestBareLeavesNothing(t *testing.T) {
	r := runBare(t, context.Background(), &systemBare, shell("sleep 600 & echo $!"), nil, "")
	pid, err := strconv.Atoi(strings.TrimSpace(r.stdout.String()))
	if err != nil || r.err != nil || r.took > time.Minute {
		t.Fatalf("%q, %v after %v", r.stdout.String(), r.err, r.took)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = syscall.Kill(pid, 0); err == syscall.ESRCH || zombie(pid) {
			return
		}
	}
	t.Errorf("process %d lives: %v", pid, err)
}

// zombie tells whether a process has ended but is not reaped in this container.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

type deaf struct{}

func (deaf) Write([]byte) (int, error) { return 0, errors.New("not listening") }

func TestBareIsDrained(t *testing.T) {
	job := shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2")
	job.Timeout = 20 * time.Second
	planned, err := systemBare.Plan(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if exit, err := planned.Start(context.Background(), bailey.Lent{}, bailey.Streams{Stdout: deaf{}}); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := planned.Start(context.Background(), bailey.Lent{}, bailey.Streams{}); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a second start: %v", err)
	}
}

func openPlace(t *testing.T, path string) bailey.Place {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(real)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return bailey.Place{Input: "repo", Path: real, File: f}
}

func TestBareRefuses(t *testing.T) {
	dir := t.TempDir()
	script, own, secret := filepath.Join(dir, "script"), filepath.Join(dir, "own"), filepath.Join(dir, "below", "secret")
	for name, text := range map[string]string{script: "#!/bin/sh\n", own: "\x7fELF"} {
		if err := errors.Join(os.WriteFile(name, []byte(text), 0o755), os.Chmod(name, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	here := openPlace(t, dir)
	masked := bare{path: "/usr/bin:/bin", mask: []string{filepath.Join(here.Path, "below", "secret")}}
	cat := func(change func(*bailey.Job)) bailey.Job {
		job := bailey.Job{Command: "cat"}
		change(&job)
		return job
	}
	for name, c := range map[string]struct {
		job  bailey.Job
		kind bailey.Kind
	}{
		"no such program":      {bailey.Job{Command: "no-such-program"}, bailey.Unavailable},
		"no such path":         {bailey.Job{Command: "/no/such/program"}, bailey.Unavailable},
		"a path that is not":   {bailey.Job{Command: "./cat"}, bailey.Invalid},
		"a way up":             {bailey.Job{Command: ".."}, bailey.Invalid},
		"nothing":              {bailey.Job{}, bailey.Invalid},
		"a directory":          {bailey.Job{Command: "/usr"}, bailey.Unavailable},
		"written by others":    {bailey.Job{Command: own}, bailey.Denied},
		"NUL":                  {cat(func(j *bailey.Job) { j.Args = []string{"a\x00b"} }), bailey.Invalid},
		"a /proc":              {cat(func(j *bailey.Job) { j.NeedsProc = true }), bailey.Unavailable},
		"nowhere":              {cat(func(j *bailey.Job) { j.Dir = "/usr" }), bailey.Invalid},
		"beside its place":     {cat(func(j *bailey.Job) { j.Places, j.Dir = []bailey.Place{here}, here.Path+"s" }), bailey.Denied},
		"a masked place":       {cat(func(j *bailey.Job) { j.Places = []bailey.Place{openPlace(t, secret)} }), bailey.Denied},
		"a place with a mask":  {cat(func(j *bailey.Job) { j.Places = []bailey.Place{here} }), bailey.Denied},
		"a place not opened":   {cat(func(j *bailey.Job) { j.Places = []bailey.Place{{Path: dir}} }), bailey.Internal},
		"PATH":                 {cat(func(j *bailey.Job) { j.Env = []string{"PATH=/tmp"} }), bailey.Invalid},
		"home, by another way": {cat(func(j *bailey.Job) { j.Env = []string{"Home=/tmp"} }), bailey.Invalid},
		"no value":             {cat(func(j *bailey.Job) { j.Env = []string{"NAME"} }), bailey.Invalid},
		"no name":              {cat(func(j *bailey.Job) { j.Env = []string{"1=x"} }), bailey.Invalid},
		"a NUL in a value":     {cat(func(j *bailey.Job) { j.Env = []string{"A=x\x00"} }), bailey.Invalid},
	} {
		planned, err := masked.Plan(context.Background(), c.job)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
		if planned != nil {
			planned.Close()
		}
	}
	f, err := os.Open(script)
	info, err2 := os.Lstat(script)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (&bareProgram{path: script, file: f, info: info}).checkAndHash(); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "script") {
		t.Errorf("a script: %v", err)
	}
}

// TestBareChanged checks that a file replaced between check and start is detected, as far as stat shows it.
func TestBareChanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	place := openPlace(t, dir)
	planned, err := systemBare.Plan(context.Background(), bailey.Job{Command: "cat", Places: []bailey.Place{place}, Dir: place.Path})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if err := errors.Join(os.Rename(dir, dir+"2"), os.Symlink("/etc", dir)); err != nil {
		t.Fatal(err)
	}
	if exit, err := planned.Start(context.Background(), bailey.Lent{}, bailey.Streams{}); !errors.Is(err, bailey.Conflict) || exit.Code != bailey.NeverRan {
		t.Errorf("a place that became a link: %+v, %v", exit, err)
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("one"), 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(file)
	p := &bareProgram{path: file, info: info}
	if err != nil || !p.isUnchanged() {
		t.Fatalf("a program that is as it was: %v", err)
	}
	if err := os.WriteFile(file, []byte("another"), 0o755); err != nil || p.isUnchanged() {
		t.Errorf("a program that was written anew passes, %v", err)
	}
}

func TestBareLends(t *testing.T) {
	planned, err := systemBare.Plan(context.Background(), bailey.Job{Command: "env", EnvNames: []string{"TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if exit, err := planned.Start(context.Background(), bailey.Lent{Env: []string{"OTHER=x"}}, bailey.Streams{}); err == nil || exit.Code != bailey.NeverRan {
		t.Errorf("what was not planned is lent: %+v, %v", exit, err)
	}
}

// TestBareUnderSeatbelt replaces sandbox-exec(1) with a script that prints its arguments.
func TestBareUnderSeatbelt(t *testing.T) {
	dir := t.TempDir()
	standIn := filepath.Join(dir, "sandbox-exec")
	if err := os.WriteFile(standIn, []byte("#!/bin/sh\nprintf '%s\\037' \"$@\" \"$HOME\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	place := openPlace(t, dir)
	b := bare{path: "/usr/bin:/bin", seatbelt: standIn, mask: []string{filepath.Join(place.Path, "sandbox-exec"), "/elsewhere"}}
	job := bailey.Job{Command: "cat", Args: []string{"-p", "x y"}, Places: []bailey.Place{place}, Dir: place.Path, Exec: []string{"ls"}, Read: []string{"/etc/passwd", "/no/such/file"}}
	planned, err := b.Plan(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	var out bytes.Buffer
	exit, err := planned.Start(context.Background(), bailey.Lent{}, bailey.Streams{Stdout: &out})
	got := strings.Split(strings.TrimSuffix(out.String(), "\037"), "\037")
	cage := planned.Cage()
	if err != nil || exit.Code != 0 || len(got) != 8 {
		t.Fatalf("%+v, %v: %q", exit, err, got)
	}
	sum := sha256.Sum256([]byte(got[3]))
	if got[0] != "-D" || got[1] != "HOME="+got[7] || got[2] != "-p" || got[4] != cage.Binary || !slices.Equal(got[5:7], job.Args) {
		t.Errorf("sandbox-exec gets %q", got)
	}
	if cage.Kind != "seatbelt" || cage.Enforced || cage.Layers != nil || cage.PlanDigest != hex.EncodeToString(sum[:]) || cage.Plan != got[3] ||
		len(cage.Programs) != 2 || cage.Programs[0] != (bailey.Program{Path: cage.Binary, SHA256: cage.BinaryDigest}) || filepath.Base(cage.Programs[1].Path) != "ls" || len(cage.Programs[1].SHA256) != 64 {
		t.Errorf("the cage is %+v", cage)
	}
	rules := parseSBPL(t, got[3])
	if !rules.allow("file-read-data", place.Path+"/x") || rules.allow("file-read-data", place.Path+"/sandbox-exec") || rules.allow("file-read-data", "/elsewhere") ||
		!rules.allow("process-exec", cage.Binary) || rules.allow("process-exec", "/bin/sh") || rules.allow("file-write-data", place.Path+"/x") {
		t.Errorf("the profile is not that of the call:\n%s", got[3])
	}
	b.mask = nil
	place.Write = true
	job.Places = []bailey.Place{place}
	writing, err := b.Plan(context.Background(), job)
	if err != nil || writing.Cage().Kind != "none" || writing.Cage().PlanDigest != "" {
		t.Fatalf("a call that writes: %v", err)
	}
	writing.Close()
	b.seatbelt = filepath.Join(dir, "none")
	if _, err := b.Plan(context.Background(), bailey.Job{Command: "cat"}); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("without sandbox-exec: %v", err)
	}
}
