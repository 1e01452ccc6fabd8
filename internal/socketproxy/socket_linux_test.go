package socketproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestSocketRefused checks that New opens nothing but sockets, and that the error names the remedy.
func TestSocketRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), nil, 0o600), syscall.Mkfifo(at("fifo"), 0o600), os.Symlink(at("file"), at("link")), os.Symlink(at("loop"), at("loop"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bailey.Kind{"file": bailey.Denied, "fifo": bailey.Denied, "link": bailey.Denied, ".": bailey.Denied, "loop": bailey.Unavailable, "none": bailey.Unavailable} {
		_, err := New(Config{API: bailey.API{Socket: "docker", Path: at(name)}})
		if !errors.Is(err, want) || !strings.Contains(bailey.HintOf(err), "sockets: {docker: /path}") {
			t.Errorf("%s: %v; %s", name, err, bailey.HintOf(err))
		}
	}
}

// TestSocketByLink checks that a symlink is followed only once. If another socket takes that place later, it is not
// used.
func TestSocketByLink(t *testing.T) {
	w := newWorld(t, nil, Limits{})
	w.stop()
	real := w.path
	w.path, w.inside = real+".link", w.inside+"2"
	if err := os.Symlink(real, w.path); err != nil {
		t.Fatal(err)
	}
	w.serve(Limits{})
	other := w.listen(real + ".other")
	go func() {
		if c, err := other.Accept(); err == nil {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nthe other")
			c.Close()
		}
	}()
	for _, path := range []string{w.path, real} {
		if err := os.Rename(real+".other", path); err != nil {
			t.Fatal(err)
		}
		if answer := w.say(get("/_ping")); !strings.HasSuffix(answer, "answered\n") {
			t.Errorf("%q", answer)
		}
		if path == w.path {
			if err := os.Rename(path, real+".other"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAttackSocketOfAnother checks that the socket of another user is refused, even if chown gave it to root: the
// kernel tells which user listens.
func TestAttackSocketOfAnother(t *testing.T) {
	const path = "BAILEY_DAEMON_SOCKET"
	if at := os.Getenv(path); at != "" { // in the process of the other user
		ln, err := net.Listen("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("ready\n")
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nthe other")
			c.Close()
		}
	}
	ktest.Require(t, "root")
	dir, err := os.MkdirTemp("/tmp", "daemon")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self := filepath.Join(dir, "self")
	text, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.WriteFile(self, text, 0o755), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, path: filepath.Join(dir, "d.sock"), inside: filepath.Join(dir, "i.sock")}
	cmd := exec.Command(self, "-test.run=^TestAttackSocketOfAnother$")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), path+"="+w.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{API: bailey.API{Socket: "docker", Path: w.path}}); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "belongs to uid 54321") {
		t.Errorf("%v", err)
	}
	if err := os.Chown(w.path, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.serve(Limits{})
	if answer := w.say(get("/_ping")); !strings.HasPrefix(answer, "HTTP/1.1 502 ") || strings.Contains(answer, "the other") || !strings.Contains(answer, "neither to root nor to you") {
		t.Errorf("%q", answer)
	}
}

func TestUsual(t *testing.T) {
	for _, d := range bailey.Daemons() {
		if p := Usual(d); !filepath.IsAbs(p) || !strings.HasSuffix(p, ".sock") && !strings.HasSuffix(p, ".socket") {
			t.Errorf("%s: %s", d, p)
		}
	}
}
