//go:build linux

package process

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/ktest"
)

const value = "hunter2-the-value"

// TestMain makes this test binary the broker program if BROKER_PROGRAM is set.
func TestMain(m *testing.M) {
	if os.Getenv("BROKER_PROGRAM") != "" {
		Main()
		return
	}
	os.Exit(m.Run())
}

// place returns a directory with a table.
func place(t *testing.T, leases string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("admitted: [%d]\nleases:\n%s", os.Geteuid(), leases)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, broker.TableName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const free = `  free: {literal: "` + value + `", approval: none}` + "\n"

func command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), "BROKER_PROGRAM=1")
	return cmd
}

// must runs the program, checks its exit code and returns its output, which must not contain the value.
func must(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := command(args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("%v: exit code %d, want %d\n%s", args, got, code, out)
	}
	if strings.Contains(string(out), value) {
		t.Errorf("%v shows the value:\n%s", args, out)
	}
	return string(out)
}

// serve starts the program and waits until it serves. said returns all of its standard error after its end.
func serve(t *testing.T, dir string, change func(*exec.Cmd)) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	cmd = command("serve", "--dir", dir)
	if change != nil {
		change(cmd)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	rest := &bytes.Buffer{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		rest.WriteString(line)
		if err != nil {
			t.Fatalf("it does not serve: %s", rest)
		}
		if strings.Contains(line, "msg=serving") {
			break
		}
	}
	done := make(chan struct{})
	go func() { rest.ReadFrom(lines); close(done) }()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait(); <-done; r.Close() })
	return cmd, func() string { <-done; return rest.String() }
}

func client(dir string) broker.Client {
	return broker.Client{Socket: filepath.Join(dir, broker.SocketName), UID: os.Geteuid()}
}

// TestVerbs checks that a table can be shown, applied, served, changed and applied again, and that a table that was not
// applied is refused.
func TestVerbs(t *testing.T) {
	dir := place(t, free)
	if out := must(t, 0, "--help"); !strings.Contains(out, "bailey-broker serve") {
		t.Error(out)
	}
	must(t, 0, "--version")
	for _, bad := range [][]string{{"lend"}, {"serve", "--dir", dir, "more"}, {"serve", "--no-such"}, {"status", "--yes"}} {
		if out := must(t, 2, bad...); !strings.Contains(out, "→") {
			t.Errorf("%v: no hint in %s", bad, out)
		}
	}
	must(t, 1, "serve", "--dir", filepath.Join(dir, "nowhere"))
	if out := must(t, 1, "serve", "--dir", dir); !strings.Contains(out, "no table was applied") {
		t.Error(out)
	}
	if out := must(t, 1, "apply", "--dir", dir); !strings.Contains(out, "+ lease free: literal") || !strings.Contains(out, "nothing was changed") {
		t.Error(out)
	}
	must(t, 0, "apply", "--dir", dir, "--yes")
	if out := must(t, 0, "apply", "--dir", dir); !strings.Contains(out, "nothing to do") {
		t.Error(out)
	}
	must(t, 127, "status", "--dir", dir)
	cmd, _ := serve(t, dir, nil)
	if out := must(t, 1, "serve", "--dir", dir); !strings.Contains(out, "another broker serves") {
		t.Error(out)
	}
	table := filepath.Join(dir, broker.TableName)
	old, err := os.ReadFile(table)
	if err == nil {
		err = os.WriteFile(table, append(old, []byte("  more: {env: MORE, approval: none}\n")...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out := must(t, 0, "status", "--dir", dir); !strings.Contains(out, "CHANGED") || strings.Contains(out, "lease more") {
		t.Error(out)
	}
	if out := must(t, 0, "apply", "--dir", dir, "--yes"); !strings.Contains(out, "+ lease more: env MORE") || strings.Contains(out, "lease free") {
		t.Error(out)
	}
	var got struct {
		broker.Hello
		UID    int
		Socket string
	}
	if err := json.Unmarshal([]byte(must(t, 0, "status", "--dir", dir, "--json")), &got); err != nil || len(got.Leases) != 2 || got.Changed || got.UID != os.Geteuid() || got.PID != cmd.Process.Pid {
		t.Errorf("%+v %v", got, err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(table, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must(t, 1, "serve", "--dir", dir); !strings.Contains(out, "has changed since it was applied") || !strings.Contains(out, "bailey-broker apply") {
		t.Error(out)
	}
}

// TestNoCore checks that the values cannot leave the process in a core: it writes no core file, other processes of its
// user cannot read its memory, and its output on an abort contains no value.
func TestNoCore(t *testing.T) {
	dir := place(t, free)
	must(t, 0, "apply", "--dir", dir, "--yes")
	where := t.TempDir()
	cmd, said := serve(t, dir, func(c *exec.Cmd) {
		c.Dir = where
		c.Env = append(c.Env, "GOTRACEBACK=crash")
	})
	lease, err := client(dir).Lend(t.Context(), bailey.Loan{Receipt: "r-1", Capability: "x.y", Wants: []bailey.Want{{Name: "free", Env: "A"}}})
	if err != nil || lease.Secrets[0].Reveal() != value {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	limits, err := os.ReadFile(proc + "limits")
	if err != nil || !slices.ContainsFunc(strings.Split(string(limits), "\n"), func(l string) bool {
		f := strings.Fields(l)
		return strings.HasPrefix(l, "Max core file size") && f[4] == "0" && f[5] == "0"
	}) {
		t.Errorf("%s %v", limits, err)
	}
	// If a process is not dumpable, its /proc directory belongs to root (proc(5)).
	info, err := os.Stat(proc + "mem")
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%v %v", info, err)
	}
	if os.Geteuid() != 0 {
		if f, err := os.Open(proc + "mem"); err == nil {
			f.Close()
			t.Error("its memory can be opened by its own user")
		}
	}
	cmd.Process.Signal(syscall.SIGABRT)
	cmd.Wait()
	if cmd.ProcessState.Sys().(syscall.WaitStatus).CoreDump() {
		t.Error("a core was written")
	}
	if left, _ := os.ReadDir(where); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	if words := said(); strings.Contains(words, value) || !strings.Contains(words, "SIGABRT") {
		t.Errorf("its last words hold the value, or are none:\n%s", words)
	}
}

// TestOrdinaryUserMemory checks that an ordinary user cannot read the memory of a broker that runs under the same uid.
func TestOrdinaryUserMemory(t *testing.T) {
	ktest.Require(t, "root", "setpriv")
	run, err := os.MkdirTemp("", "broker-core-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	const uid = 61240
	os.Chmod(run, 0o755)
	dir := filepath.Join(run, "state")
	text := fmt.Sprintf("admitted: [%d]\nleases:\n%s", uid, free)
	exe := filepath.Join(run, "bailey-broker")
	b, err := os.ReadFile("/proc/self/exe")
	for _, do := range []func() error{
		func() error { return os.WriteFile(exe, b, 0o755) }, func() error { return os.Mkdir(dir, 0o700) },
		func() error { return os.WriteFile(filepath.Join(dir, broker.TableName), []byte(text), 0o600) },
		func() error { return os.Chown(filepath.Join(dir, broker.TableName), uid, uid) }, func() error { return os.Chown(dir, uid, uid) },
	} {
		if err == nil {
			err = do()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	script := `"$0" apply --dir "$1" --yes >&2 || exit 9
"$0" serve --dir "$1" & pid=$!
until "$0" status --dir "$1" >/dev/null 2>&1; do kill -0 $pid || exit 8; sleep 0.05; done
if head -c1 /proc/$pid/environ >/dev/null 2>&1; then echo READ; else echo CLOSED; fi
kill $pid; wait $pid`
	cmd := exec.Command("setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups", "sh", "-c", script, exe, dir)
	cmd.Env = append(os.Environ(), "BROKER_PROGRAM=1")
	cmd.Dir = run
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "CLOSED") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLinks checks the modules that are linked into the program, as recorded in the binary.
func TestLinks(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "go")
	exe := filepath.Join(t.TempDir(), "bailey-broker")
	if out, err := exec.Command("go", "build", "-o", exe, "../../../cmd/bailey-broker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		if !slices.Contains([]string{"github.com/goccy/go-yaml", "golang.org/x/crypto", "golang.org/x/sys"}, m.Path) {
			t.Errorf("it links %s", m.Path)
		}
	}
	// The program starts for each gateway, so no package may do much before main. Allocations are counted, because time
	// depends on what else the machine does.
	cmd := exec.Command(exe, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	traced := 0
	for line := range strings.Lines(string(out)) {
		var name string
		var start, took float64
		var size, allocations int
		if n, _ := fmt.Sscanf(line, "init %s @%g ms, %g ms clock, %d bytes, %d allocs", &name, &start, &took, &size, &allocations); n == 5 {
			traced++
			if allocations > 400 || size > 64<<10 {
				t.Errorf("%s makes %d allocations of %d bytes to initialise, 400 and %d allowed", name, allocations, size, 64<<10)
			}
		}
	}
	if traced < 10 {
		t.Fatalf("only %d packages seen: the trace was not read", traced)
	}
}

// TestLeasesAreTried checks that test reports each lease and fails if one has no value, and that setup prints what the
// issuers must allow. Neither shows a value.
func TestLeasesAreTried(t *testing.T) {
	dir := place(t, free+`  gone: {env: BROKER_TEST_GONE, approval: none}
  repo: {github: {server: "https://127.0.0.1:1", app: Iv1.x, key: app.pem, installation: 1, repositories: [web], permissions: {contents: read}}, approval: none}
`)
	out := must(t, 1, "test", "--dir", dir)
	for _, says := range []string{"ok      free (literal): 17 bytes", "failed  gone (env BROKER_TEST_GONE): ", "failed  repo (github contents:read in web): ", "→", "2 of 3 leases failed"} {
		if !strings.Contains(out, says) {
			t.Errorf("%q is missing in\n%s", says, out)
		}
	}
	var report struct {
		OK     bool
		Leases []broker.Trial
	}
	if err := json.Unmarshal([]byte(must(t, 0, "test", "--dir", dir, "--json", "free")), &report); err != nil || !report.OK || len(report.Leases) != 1 || report.Leases[0].Bytes != len(value) {
		t.Errorf("%+v, %v", report, err)
	}
	must(t, 1, "test", "--dir", dir, "nothing")
	if out := must(t, 0, "setup", "--dir", dir); !strings.Contains(out, "contents: read") || !strings.Contains(out, "## lease free\n# nothing to set up") {
		t.Error(out)
	}
	var texts struct{ Leases map[string]string }
	if err := json.Unmarshal([]byte(must(t, 0, "setup", "--dir", dir, "--json", "repo")), &texts); err != nil || !strings.Contains(texts.Leases["repo"], "Install it on these repositories only: web") {
		t.Errorf("%v, %v", texts, err)
	}
}

// TestLeaseIsAdded checks that a lease is tried before it is written, that nothing is written if it fails or no person
// agrees, and that open loans can be revoked.
func TestLeaseIsAdded(t *testing.T) {
	dir := place(t, free)
	before, err := os.ReadFile(filepath.Join(dir, broker.TableName))
	if err != nil {
		t.Fatal(err)
	}
	app := []string{"repo", "github", "server=https://127.0.0.1:1", "app=Iv1.x", "key=app.pem", "installation=1", "repositories=[web]", "permissions={contents: read}"}
	add := func(code int, flags ...string) string {
		return must(t, code, append(append([]string{"add", "--dir", dir}, flags...), app...)...)
	}
	for says, flags := range map[string][]string{"needs --approval": {"--yes"}, "nothing was written": {"--yes", "--approval", "none"},
		"nothing was changed": {"--untested", "--approval", "none"}} {
		code := 1
		if says == "needs --approval" {
			code = 2
		}
		if out := add(code, flags...); !strings.Contains(out, says) {
			t.Errorf("%v: %s", flags, out)
		}
	}
	for _, bad := range [][]string{{"add", "--dir", dir}, {"add", "--dir", dir, "x", "cloud"}, {"add", "--dir", dir, "--approval", "none", "x", "github", "app"}, {"revoke", "--dir", dir}} {
		must(t, 2, bad...)
	}
	if now, err := os.ReadFile(filepath.Join(dir, broker.TableName)); err != nil || !bytes.Equal(before, now) {
		t.Errorf("the file changed: %s, %v", now, err)
	}
	add(0, "--yes", "--untested", "--approval", "none", "--scope", "read web")
	if out := must(t, 0, "apply", "--dir", dir, "--yes"); !strings.Contains(out, "+ lease repo: github contents:read in web, for read web") {
		t.Error(out)
	}
	if out := must(t, 127, "revoke", "--dir", dir, "--all"); !strings.Contains(out, "→") {
		t.Error(out)
	}
	serve(t, dir, nil)
	lease, err := client(dir).Lend(t.Context(), bailey.Loan{Receipt: bailey.NewReceiptID(), Capability: "git.push", Wants: []bailey.Want{{Name: "free", Env: "FREE"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Return()
	if out := must(t, 0, "revoke", "--dir", dir, "free"); !strings.Contains(out, "open loans ended: 1") {
		t.Error(out)
	}
}
