//go:build linux

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/hostapi"
	"bailey/internal/image"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
)

const patience = 3 * time.Minute

// TestMain is also a client beside the program: it creates a sandbox, runs a command in it, and prints what it got.
func TestMain(m *testing.M) {
	if home := os.Getenv("BAILEY_HOST_CLIENT"); home != "" {
		if err := useSandbox(localapi.Home(home)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var ann = hostapi.Owner{Person: "ann", Agent: "coder"}

func useSandbox(home localapi.Home) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := hostapi.Here(home)
	if err != nil {
		return err
	}
	s, err := hostapi.Create.Ask(ctx, c, ann, hostapi.CreateRequest{Image: "tiny", MemoryMB: 96})
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, ann, hostapi.Command{Sandbox: s.ID, Argv: []string{"/bin/busybox", "echo", "inside", s.ImageDigest}},
		hostapi.Streams{Stdout: os.Stdout})
	return err
}

// TestOnDemand lets clients start bailey-host, at the same time, and create sandboxes from a stored image. The programs
// are built as they are shipped.
func TestOnDemand(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	dir, err := os.MkdirTemp("", "bho") // a socket has a short name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	home := localapi.Home(filepath.Join(dir, "home"))
	programs := buildPrograms(t, dir)
	addImage(t, hostapi.ImagesOf(home), filepath.Join(programs, "bailey-guest"))
	host := func(args ...string) string {
		cmd := exec.Command(filepath.Join(programs, "bailey-host"), append(args, "--dir", string(hostapi.DirOf(home)))...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if out := host("stop"); !strings.Contains(out, "no host was running") {
		t.Error(out)
	}
	t.Cleanup(func() { clearSandboxes(t, home, programs); host("stop", "--json") })
	outputs := make(chan string, 2)
	for range cap(outputs) {
		go func() {
			cmd := exec.Command(filepath.Join(programs, "client"))
			cmd.Env = append(os.Environ(), "BAILEY_HOST_CLIENT="+string(home))
			out, err := cmd.CombinedOutput()
			outputs <- fmt.Sprint(string(out), err)
		}()
	}
	for range cap(outputs) {
		if out := <-outputs; !strings.HasPrefix(out, "inside ") || !strings.HasSuffix(out, "\n<nil>") {
			log, _ := os.ReadFile(hostapi.DirOf(home).Log())
			t.Fatalf("%s\n%s", out, log)
		}
	}
	var status hostapi.Status
	if err := json.Unmarshal([]byte(host("status", "--json")), &status); err != nil || status.Sandboxes != 2 || status.Running != 2 || status.Version != "dev" {
		t.Errorf("%+v, %v", status, err)
	}
	if out := host("status"); !strings.Contains(out, "2 sandboxes, of which 2 have a machine") {
		t.Error(out)
	}
	if out := host("stop"); !strings.Contains(out, "has stopped") {
		t.Error(out)
	}
}

// clearSandboxes destroys all sandboxes, by a host that is started for it.
func clearSandboxes(t *testing.T, home localapi.Home, programs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	host := exec.CommandContext(ctx, filepath.Join(programs, "bailey-host"), "serve", "--emulated", "--dir", string(hostapi.DirOf(home)))
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer host.Wait()
	c := &hostapi.Client{Socket: hostapi.DirOf(home).Socket()}
	list, err := hostapi.List.Ask(ctx, c, ann, hostapi.None{})
	for err != nil && ctx.Err() == nil { // until it listens
		time.Sleep(10 * time.Millisecond)
		list, err = hostapi.List.Ask(ctx, c, ann, hostapi.None{})
	}
	if len(list) != 2 {
		t.Errorf("the next host has %+v", list)
	}
	for _, s := range list {
		if _, err := hostapi.Destroy.Ask(ctx, c, ann, hostapi.Target{Sandbox: s.ID}); err != nil {
			t.Error(err)
		}
	}
	if err := c.StopHost(ctx); err != nil {
		t.Error(err)
	}
}

// buildPrograms builds the programs, and copies this one as "client" beside them.
func buildPrograms(t *testing.T, dir string) string {
	t.Helper()
	programs := filepath.Join(dir, "bin")
	cmd := exec.Command("go", "build", "-o", programs+"/", "bailey/cmd/bailey-host", "bailey/cmd/bailey-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(filepath.Join(programs, "client"), b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

func addImage(t *testing.T, dir, agent string) {
	t.Helper()
	store, err := image.Open(dir)
	if err == nil {
		_, err = store.AddMinimal(t.Context(), image.MinimalConfig{Name: "tiny", Arch: "amd64", Agent: agent,
			Kernel: ktest.Fetched(t, "linux-7.1-amd64"), Tools: ktest.Fetched(t, "busybox-amd64")})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUsage checks help, version and refused arguments.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		code   int
		out    string
		stderr string
	}{
		{[]string{"--help"}, 0, "bailey-host serve", ""}, {nil, 0, "bailey-host status", ""}, {[]string{"--version"}, 0, "bailey-host dev", ""},
		{[]string{"no"}, exitUsage, "", "is not a command"}, {[]string{"serve", "--no"}, exitUsage, "", "flag provided"},
		{[]string{"status", "x"}, exitUsage, "", "takes no argument"}, {[]string{"serve", "--help"}, 0, "bailey-host serve", ""},
		{[]string{"serve", "--uids", "1:+2", "--dir", "x"}, exitUsage, "", "FIRST:N"},
		{[]string{"status", "--dir", t.TempDir()}, exitUnreachable, "", "not reachable"},
	} {
		var out, complaint strings.Builder
		p := &program{stdout: &out, stderr: &complaint}
		if code := p.runMain(c.args); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(complaint.String(), c.stderr) {
			t.Errorf("%q: %d\n%s%s", c.args, code, out.String(), complaint.String())
		}
	}
}

// TestUnit checks that the unit starts the program with flags that it has, keeps machines when the host ends, and that its
// directories are those of the flags.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../../packaging/systemd/bailey-host.service")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, want := range []string{"Restart=always", "KillMode=process", "StateDirectory=bailey-host",
		"StateDirectoryMode=0700", "RuntimeDirectory=bailey-host", "RuntimeDirectoryMode=0755"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit has no line %s", want)
		}
	}
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "ExecStart=") })
	if i < 0 {
		t.Fatal("the unit starts nothing")
	}
	words := strings.Fields(lines[i])
	p := &program{}
	if err := p.parseFlags(words[1], words[2:]); err != nil || p.dir != "/var/lib/bailey-host/host" || p.images != "/var/lib/bailey-host/images" ||
		p.socket != "/run/bailey-host/host.sock" || p.group != "bailey-host" || words[0] != "ExecStart=/usr/bin/bailey-host" {
		t.Errorf("%q: %+v, %v", words, p, err)
	}
}
