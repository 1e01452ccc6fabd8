package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/settings"
	"bailey/pack"
	"bailey/packs"
)

// service starts a real daemon for one test: Podman, which also supports Docker's API, with one image and one container
// that was created but never started.
func service(t *testing.T) (socket string) {
	t.Helper()
	ktest.Require(t, "root", "podman", "tar")
	dir := t.TempDir()
	socket = filepath.Join(dir, "p.sock")
	podman := func(args ...string) *exec.Cmd {
		return exec.Command("podman", append([]string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"),
			"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none"}, args...)...)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("hi\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "i.tar"), "f"), podman("import", filepath.Join(dir, "i.tar"), "example/tiny:1"),
		podman("create", "--name", "probe", "--network", "none", "-e", "DB_PASSWORD=hunter2-correct-horse", "example/tiny:1", "/f")} {
		if out, err := cmd.CombinedOutput(); err != nil {
			ktest.Missing(t, "podman that can make a container", fmt.Errorf("%v: %s", err, out))
		}
	}
	cmd := podman("system", "service", "--time=0", "unix://"+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(syscall.SIGTERM); cmd.Wait() })
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return socket
		}
		if time.Now().After(end) {
			ktest.Missing(t, "podman that can serve", errors.New("its socket did not come"))
		}
	}
}

// TestDaemons runs each capability once with the real client in a cage and a real daemon, and checks the output.
func TestDaemons(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o := officeOf(t, packs.FS)
	socket := service(t)
	o.ways, o.open = EgressPlanner{Settings: func() settings.Network {
		return settings.Network{Sockets: map[string]string{"docker": socket, "podman": socket}}
	}}, true
	packsCatalog, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]any{}
	probe, tiny := map[string]any{"container": "probe"}, map[string]any{"image": "localhost/example/tiny:1"}
	for _, c := range []struct {
		id     bailey.CapabilityID
		input  map[string]any
		want   string // on standard output, or in the daemon's message if the call fails
		failed bool
	}{
		{"docker.ps", map[string]any{"all": true, "untruncated": true}, "probe", false},
		{"docker.ps", map[string]any{"last": 1, "filter": "status=created"}, "probe", false},
		{"docker.images", none, "example/tiny", false},
		{"docker.inspect", probe, "[REDACTED_", false},
		{"docker.inspect", map[string]any{"container": "nobody"}, "no such container", true},
		{"docker.image-inspect", tiny, `"Architecture"`, false},
		{"docker.image-history", tiny, "imported from tarball", false},
		{"docker.logs", map[string]any{"container": "probe", "timestamps": true, "since": "90m"}, "", false},
		{"docker.stats", probe, "EOF", true}, // Podman closes the connection if the container is not running
		{"docker.top", probe, "EOF", true},
		{"docker.port", probe, "", false},
		{"docker.diff", probe, "", false},
		{"docker.network-ls", none, "bridge", false},
		{"docker.network-inspect", map[string]any{"network": "podman"}, `"Driver"`, false},
		{"docker.volume-ls", none, "VOLUME NAME", false},
		{"docker.volume-inspect", map[string]any{"volume": "none"}, "no such volume", true},
		{"docker.df", none, "RECLAIMABLE", false},
		{"docker.info", none, "Storage Driver: vfs", false},
		{"docker.version", none, "Podman Engine", false},
		{"podman.ps", map[string]any{"all": true, "untruncated": true}, "probe", false},
		{"podman.ps", map[string]any{"last": 1, "filter": "status=created"}, "probe", false},
		{"podman.images", none, "example/tiny", false},
		{"podman.inspect", probe, "[REDACTED_", false},
		{"podman.image-inspect", tiny, `"Architecture"`, false},
		{"podman.image-inspect", map[string]any{"image": "example/tiny:1"}, `"Architecture"`, false},
		{"podman.image-history", tiny, "imported from tarball", false},
		{"podman.logs", map[string]any{"container": "probe", "timestamps": true, "since": "90m"}, "", false},
		{"podman.stats", probe, "probe", false},
		{"podman.top", probe, "", true},
		{"podman.diff", probe, "", false},
		{"podman.pods", none, "POD ID", false},
		{"podman.pod-inspect", map[string]any{"pod": "none"}, "no such pod", true},
		{"podman.network-ls", none, "bridge", false},
		{"podman.network-inspect", map[string]any{"network": "podman"}, `"driver"`, false},
		{"podman.volume-ls", none, "", false},
		{"podman.volume-inspect", map[string]any{"volume": "none"}, "no such volume", true},
		{"podman.df", none, "RECLAIMABLE", false},
		{"podman.info", none, "graphDriverName: vfs", false},
		{"podman.version", none, "Podman Engine", false},
		{"docker.inspect-any", map[string]any{"names": []any{"probe", "localhost/example/tiny:1"}}, `"Architecture"`, false},
		{"podman.inspect-any", map[string]any{"names": []any{"probe"}}, "[REDACTED_", false},
		{"podman.image-exists", tiny, "", false},
		{"podman.container-exists", map[string]any{"container": "nobody"}, "", true},
		{"podman.port", probe, "", false},
		{"podman.generate", map[string]any{"containers": []any{"probe"}}, "kind: Pod", false},
		{"podman.generate-systemd", probe, "[Service]", false},
		{"docker.tag", map[string]any{"image": "localhost/example/tiny:1", "target": "localhost/example/tiny:2"}, "", false},
		{"podman.tag", map[string]any{"image": "localhost/example/tiny:1", "target": "localhost/example/tiny:3"}, "", false},
		{"docker.images", map[string]any{"repository": "localhost/example/tiny"}, "example/tiny", false},
		{"docker.rename", map[string]any{"container": "probe", "name": "probe2"}, "", false},
		{"podman.rename", map[string]any{"container": "probe2", "name": "probe3"}, "", false},
		{"docker.commit", map[string]any{"container": "probe3", "target": "localhost/example/made:1"}, "EOF", true}, // Podman wants a body, Docker does not
		{"podman.commit", map[string]any{"container": "probe3", "target": "localhost/example/made:2"}, "", false},
		{"docker.stop", map[string]any{"containers": []any{"probe3"}}, "probe3", false},
		{"podman.stop", map[string]any{"containers": []any{"probe3"}}, "probe3", false},
		{"docker.stop", map[string]any{"containers": []any{"nobody"}}, "no such container", true},
		{"docker.rmi", map[string]any{"images": []any{"localhost/example/tiny:2"}}, "untagged", false},
		{"podman.rmi", map[string]any{"images": []any{"localhost/example/tiny:3"}}, "untagged", false},
		{"docker.rm", map[string]any{"containers": []any{"probe3"}, "options": []any{"-f", "-v"}}, "probe3", false},
		{"podman.rm", map[string]any{"containers": []any{"probe3"}}, "no container", true},
		{"podman.image-prune", map[string]any{"options": []any{"-a", "-f"}}, "", false},
		{"docker.images", none, "REPOSITORY", false},
		{"docker.volume-prune", map[string]any{"options": []any{"-f"}}, "reclaimed", false},
		{"podman.system-prune", map[string]any{"options": []any{"-f"}}, "", false},
		{"podman.events", map[string]any{"options": []any{"--stream=false"}}, "", true}, // the service of this test keeps none
	} {
		if daemon := strings.SplitN(string(c.id), ".", 2)[0]; ktest.Has(daemon) != nil {
			continue
		}
		res := o.call(c.id, c.input)
		said := string(res.Stdout) + string(res.Stderr)
		if (res.Err != nil) != c.failed || c.failed && !errors.Is(res.Err, bailey.ToolFailed) || !strings.Contains(strings.ToLower(said), strings.ToLower(c.want)) || len(res.Refused) > 0 || strings.Contains(said, "hunter2") {
			t.Errorf("%s %v: %v %s, refused %q\n%.2000s", c.id, c.input, res.Err, bailey.HintOf(res.Err), res.Refused, said)
		}
		out := o.sealed[len(o.sealed)-1]
		want := "unix:" + strings.SplitN(string(c.id), ".", 2)[0]
		if m, err := packsCatalog.Lookup(c.id); err != nil || m.SideEffect != pack.ReadOnly {
			want += ":changes"
		}
		if !slices.Equal(out.Reaches, []string{want}) || out.Egress == nil || out.Egress.Connections == 0 || out.Egress.Events[0].Via != "unix" {
			t.Errorf("%s: the receipt has %q, %+v", c.id, out.Reaches, out.Egress)
		}
	}
}
