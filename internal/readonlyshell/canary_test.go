//go:build linux

package readonlyshell

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/ktest"
	"bailey/internal/ktest/sshhost"
	"bailey/internal/readonly"
)

// canaryVariable is the duration for which [TestCanary] runs accepted lines. .ci/full uses the default; ten minutes are
// BAILEY_CANARY=10m.
const canaryVariable = "BAILEY_CANARY"

// machineVariable says that this machine may be used up: it is an emulated one.
const machineVariable = "BAILEY_OWN_MACHINE"

// canaryLimit is over three times what the attacks alone took on a busy machine.
const canaryLimit = 90 * time.Minute

// TestCanary runs the tests of this file in an emulated machine with systemd: accepted lines, and attacks without the
// validator. With BAILEY_CORPUS, their lines are used too.
func TestCanary(t *testing.T) {
	ktest.Long(t)
	h := sshhost.StartGuest(t, "canary")
	program := filepath.Join(t.TempDir(), "shell.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	copyToGuest(t, h, program, "/run/shell.test")
	corpus := ""
	if dir := os.Getenv("BAILEY_CORPUS"); dir != "" {
		corpus = "BAILEY_CORPUS=/run"
		for _, name := range []string{"attacks.jsonl", "benign.jsonl"} {
			copyToGuest(t, h, filepath.Join(dir, name), "/run/"+name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), canaryLimit)
	defer cancel()
	line := fmt.Sprintf("mount -o remount,exec /run; chmod 755 /run/shell.test; %s=1 %s=%s %s /run/shell.test -test.v -test.timeout=%v -test.run='^TestHere'",
		machineVariable, canaryVariable, cmp.Or(os.Getenv(canaryVariable), "20s"), corpus, canaryLimit)
	out, err := exec.CommandContext(ctx, "ssh", "-F", h.Config, "-o", "BatchMode=yes", h.Name, line).CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS: TestHere") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	for l := range strings.Lines(string(out)) {
		if strings.Contains(l, "canary_test.go") {
			t.Log(strings.TrimSpace(l))
		}
	}
}

func copyToGuest(t *testing.T, h *sshhost.Host, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", h.Config, "-o", "BatchMode=yes", h.Name, "cat >"+to)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// canary notices changes of files, connections and programs on a machine of its own.
type canary struct {
	t        *testing.T
	dir      string // every user may write it
	files    map[string]string
	accepted atomic.Int64 // connections
	ports    []string

	mu  sync.Mutex
	ran map[string]bool // programs that were executed; guarded by mu
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	if os.Getenv(machineVariable) == "" {
		ktest.Missing(t, "own-machine", errors.New("it watches a whole machine: TestCanary runs it in an emulated one"))
	}
	needed(t)
	c := &canary{t: t, dir: "/var/canary", ran: map[string]bool{}}
	for _, err := range []error{os.MkdirAll(c.dir, 0o777), os.Chmod(c.dir, 0o777),
		os.WriteFile(c.dir+"/old", []byte("hello\n"), 0o666), os.Chmod(c.dir+"/old", 0o666),
		os.WriteFile(c.dir+"/program", []byte("#!/bin/sh\necho x >"+c.dir+"/new\n"), 0o777), os.Chmod(c.dir+"/program", 0o777)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		c.ports = append(c.ports, fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.accepted.Add(1)
				conn.Close()
			}
		}()
	}
	c.watchPrograms()
	c.files = c.listFiles()
	return c
}

// watchPrograms records each file that is executed (fanotify(7), FAN_OPEN_EXEC).
func (c *canary) watchPrograms() {
	c.t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_LARGEFILE)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_OPEN_EXEC, unix.AT_FDCWD, "/usr")
	}
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_OPEN_EXEC, unix.AT_FDCWD, "/run")
	}
	if err != nil {
		c.t.Fatalf("fanotify: %v", err)
	}
	c.t.Cleanup(func() { unix.Close(fd) })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				return
			}
			for b := buf[:n]; len(b) >= 24; {
				size, file := binary.NativeEndian.Uint32(b), int32(binary.NativeEndian.Uint32(b[16:]))
				name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file))
				unix.Close(int(file))
				c.mu.Lock()
				c.ran[cmp.Or(name, fmt.Sprint(err))] = true
				c.mu.Unlock()
				b = b[size:]
			}
		}
	}()
}

// changing are directories that the system itself changes.
var changing = []string{"/proc", "/sys", "/run/systemd", "/run/log", "/run/udev", "/dev/pts", "/var/lib/systemd", "/tmp/.", "/var/log/journal"}

// listFiles describes every file of the machine.
func (c *canary) listFiles() map[string]string {
	all := map[string]string{}
	filepath.WalkDir("/", func(name string, d fs.DirEntry, err error) error {
		if slices.Contains(changing, name) {
			return fs.SkipDir
		}
		var s unix.Stat_t
		if err == nil && unix.Lstat(name, &s) == nil && s.Mode&unix.S_IFMT != unix.S_IFCHR { // a terminal changes at each output
			all[name] = fmt.Sprintf("%o %d %d %d %d.%09d", s.Mode, s.Uid, s.Gid, s.Size, s.Ctim.Sec, s.Ctim.Nsec)
			if s.Mode&unix.S_IFMT == unix.S_IFSOCK {
				all[name] = "socket"
			}
		}
		return nil
	})
	return all
}

// effects returns what has happened since the last time, except the execution of the given programs.
func (c *canary) effects(programs map[string]bool) (found []string) {
	now := c.listFiles()
	for name, text := range now {
		if c.files[name] != text {
			found = append(found, fmt.Sprintf("changed %s: %q, now %q", name, c.files[name], text))
		}
	}
	for name := range c.files {
		if now[name] == "" {
			found = append(found, "removed "+name)
		}
	}
	c.files = now
	if n := c.accepted.Swap(0); n > 0 {
		found = append(found, fmt.Sprintf("%d connections", n))
	}
	time.Sleep(50 * time.Millisecond) // the last events
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.ran {
		if !programs[name] {
			found = append(found, "executed "+name)
		}
	}
	clear(c.ran)
	return found
}

// ownPrograms lists what the test itself, and a line without commands, execute.
func ownPrograms() map[string]bool {
	set := programSet{}
	if err := set.addProgram(interpreter, 0); err != nil {
		panic(err) // every host has one
	}
	// The kernel runs kmod to load the module of a socket, for example for ss.
	all := map[string]bool{"/run/shell.test": true, "/usr/bin/kmod": true}
	for _, f := range set.files {
		all[f] = true
	}
	return all
}

// tooMany is the number of lines after which the machine is examined.
const tooMany = 60

// TestHereAttacks runs attacks without the validator: the limits of the shell must hold by themselves.
func TestHereAttacks(t *testing.T) {
	c := newCanary(t)
	var lines []string
	for _, a := range attacks() {
		lines = append(lines, strings.NewReplacer("CANARY", c.dir, "PORT", c.ports[0]).Replace(a.line))
	}
	lines = append(lines, corpusLines(t, "attacks.jsonl")...)
	for batch := range slices.Chunk(lines, tooMany) {
		c.runAll(batch, "validator")
		if found := c.effects(ownPrograms()); found != nil {
			t.Errorf("one of %q: %q", batch, found)
		}
	}
	if !t.Failed() {
		t.Logf("%d attacks without the validator had no effect", len(lines))
	}
}

// TestHereLines runs lines that the validator accepts: they must write nothing, connect nowhere, and execute only their
// commands.
func TestHereLines(t *testing.T) {
	c := newCanary(t)
	d, err := time.ParseDuration(os.Getenv(canaryVariable))
	if err != nil {
		t.Fatal(err)
	}
	g := newGenerator(c, corpusLines(t, "benign.jsonl"))
	total := 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		batch, programs := g.nextBatch(t)
		c.runAll(batch, "")
		total += len(batch)
		if found := c.effects(programs); found != nil {
			t.Errorf("one of %q: %q", batch, found)
		}
	}
	if !t.Failed() {
		t.Logf("%d accepted lines of %d tried had no effect", total, g.tried)
	}
}

// runAll runs lines, two at a time.
func (c *canary) runAll(lines []string, without string) {
	limit := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for _, line := range lines {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
			defer cancel()
			l := login{line: line, without: without, request: Request{Timeout: 3 * time.Second, Output: 64 << 10}, reaches: true}
			cmd := l.command(ctx)
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				c.t.Errorf("%s: %v", line, err)
			}
		})
	}
	wg.Wait()
}

// corpusLines returns the lines of a corpus file, if there is one.
func corpusLines(t *testing.T, name string) (lines []string) {
	t.Helper()
	dir := os.Getenv("BAILEY_CORPUS")
	if dir == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		var l struct{ Cmd string }
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(l.Cmd, 0) {
			continue // sshd refuses such a line, and the environment of a process cannot contain it
		}
		lines = append(lines, l.Cmd)
	}
	return lines
}

// generator makes lines from words of lines that people type and words of attacks, and keeps those that are accepted.
type generator struct {
	c     *canary
	seeds []string
	words []string // that are put in
	dice  *rand.Rand
	tried int
}

// seedLines are lines of many families of commands.
var seedLines = []string{
	"cat /etc/os-release | head -n 3", "ls -la /var/log", "find /etc -name '*.conf' -exec grep -l root {} +", "find /var/canary -type f",
	"grep -rn root /etc/passwd", "awk -F: '{ print $1 }' /etc/passwd | sort | uniq -c", "sed -n 1,5p /etc/hosts", "sort -k1 /etc/group",
	"ps aux", "df -h", "du -sh /etc", "stat /etc/passwd", "journalctl -n 5 --no-pager", "systemctl status ssh --no-pager", "ss -tln", "ip addr",
	"tail -n 2 /var/canary/old", "xargs -n 1 echo </etc/hostname", "cut -d: -f1 /etc/passwd | tr a-z A-Z", "diff /etc/hosts /etc/hostname",
	"env", "printf '%s\\n' a b", "date", "uptime; id && uname -a", "test -f /etc/passwd && echo yes || echo no", "tar -tf /var/canary/old",
	"timeout 1 cat /var/canary/old", "comm /etc/hosts /etc/hostname", "file /usr/bin/env", "readlink -f /bin/sh", "dpkg -l", "head -c 10 /dev/zero | od -c",
}

func newGenerator(c *canary, more []string) *generator {
	g := &generator{c: c, seeds: slices.Concat(seedLines, more), dice: rand.New(rand.NewPCG(27, 1))}
	all := map[string]bool{"-o": true, "-i": true, "-w": true, "--output=/var/canary/new": true, "-exec": true, ";": true, "{}": true, ">": true,
		"/var/canary/new": true, "/var/canary/old": true, "/var/canary/program": true, "-f": true, "-c": true, "-e": true, "--": true, "-delete": true,
		"w /var/canary/new": true, "s/a/b/w /var/canary/new": true, "'BEGIN { print > \"/var/canary/new\" }'": true, "-fprint": true, "|": true, "&&": true}
	for _, line := range slices.Concat(g.seeds, corpusLines(c.t, "attacks.jsonl")) {
		for _, w := range strings.Fields(line) {
			all[w] = true
		}
	}
	g.words = slices.Sorted(maps.Keys(all))
	return g
}

// nextLine changes some words of one or two lines.
func (g *generator) nextLine() string {
	pick := func(list []string) string { return list[g.dice.IntN(len(list))] }
	words := strings.Fields(pick(g.seeds))
	if g.dice.IntN(3) == 0 {
		words = slices.Concat(words, []string{pick([]string{"|", "&&", "||", ";"})}, strings.Fields(pick(g.seeds)))
	}
	for range g.dice.IntN(4) {
		switch at := g.dice.IntN(len(words)); g.dice.IntN(3) {
		case 0:
			words[at] = pick(g.words)
		case 1:
			words = slices.Insert(words, at+1, pick(g.words))
		case 2:
			if len(words) > 1 {
				words = slices.Delete(words, at, at+1)
			}
		}
	}
	return strings.Join(words, " ")
}

// nextBatch returns accepted lines without commands for the network, and the programs that they may execute.
func (g *generator) nextBatch(t *testing.T) (batch []string, programs map[string]bool) {
	t.Helper()
	programs = ownPrograms()
	s := shell{check: readonly.Check}
	for len(batch) < tooMany {
		g.tried++
		line := g.nextLine()
		j, err := s.prepareJob(Request{}, line)
		if err != nil || j.Limits.Network {
			continue
		}
		batch = append(batch, line)
		for _, p := range j.Limits.Programs {
			programs[p] = true
		}
	}
	return batch, programs
}
