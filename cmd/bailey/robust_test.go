//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// The tests here misuse the interfaces with real processes. At the end, each reads the ledger's file: every call must
// have one intent and one outcome, and the hash chain must be valid.

// TestManyAtOnce starts eight servers and a hundred calls without a gateway. Exactly one gateway must start, with one
// ledger and one receipt for each call.
func TestManyAtOnce(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			cmd := y.command(y.program, "run", "system.echo", "-i", fmt.Sprintf("message=<%d>", i))
			var stderr strings.Builder // may say that the call waits
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil || string(out) != fmt.Sprintf("<%d>\n", i) {
				t.Errorf("run %d: %v %q %s", i, err, out, &stderr)
			}
		})
	}
	servers := make([]*served, 8)
	for i := range servers {
		servers[i] = y.serve(y.repo)
	}
	for i, s := range servers {
		wg.Go(func() {
			for n := range 5 {
				s.call(n+1, "system_echo", fmt.Sprintf(`{"message":"s%d-%d"}`, i, n))
				if text := s.hear(); !strings.Contains(text, fmt.Sprintf("s%d-%d", i, n)) {
					t.Errorf("server %d: %s", i, text)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range servers {
		s.in.Close()
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("a server ended with %v", err)
		}
	}
	y.verified(100 + 8*5)
	log, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if n := bytes.Count(log, []byte(`"kind":"gateway.start"`)); err != nil || n != 1 {
		t.Errorf("%d gateways started, %v", n, err)
	}
}

// TestServeStdinCloses closes standard input immediately, in the middle of a line, and in the middle of a call.
func TestServeStdinCloses(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	dir := y.hang()
	for name, input := range map[string]string{"at once": "", "mid-line": `{"jsonrpc":"2.0","id":`, "not JSON": "\x00\xff\n"} {
		cmd := y.command(y.program, "serve")
		cmd.Dir, cmd.Stdin = y.repo, strings.NewReader(input)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		err := cmd.Run() // on a busy machine it prints that it starts a gateway
		if said := strings.ReplaceAll(stderr.String(), "bailey: starting the gateway; it verifies its ledger first\n", ""); err != nil || said != "" {
			t.Errorf("%s: %v %s", name, err, said)
		}
	}
	s := y.serve(dir)
	s.call(1, "git_status", `{"repo":"."}`)
	y.await("git in its cage", func() bool { return howMany(below(t, y.gateway()), "git") == 1 })
	s.in.Close()
	rest, _ := io.ReadAll(s.out)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("closed in mid-call: %v, %s", err, rest)
	}
	y.await("the outcome", func() bool { return y.tally()[bailey.Killed] == 1 })
	y.verified(1)
	y.await("the end of git", func() bool { return howMany(below(t, y.gateway()), "git") == 0 })
}

// TestHugeOutput checks that 200 MB of output are drained, truncated and marked at every interface. The memory of the
// gateway must not grow with the output.
func TestHugeOutput(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	big, err := os.Create(filepath.Join(y.repo, "big"))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("every line of it is the same as the last one ", 20) + "\n"
	w := bufio.NewWriterSize(big, 1<<20)
	for n := 0; n < 200<<20; n += len(line) {
		w.WriteString(line)
	}
	if err := errors.Join(w.Flush(), big.Close()); err != nil {
		t.Fatal(err)
	}
	y.must("git", "-C", y.repo, "-c", "core.compression=1", "add", "big")
	y.must("git", "-C", y.repo, "commit", "-q", "-m", "big")
	y.must(y.program, "run", "system.echo", "-i", "message=start")
	before := memory(t, y.gateway(), "VmHWM")

	in := []string{"run", "git.show", "-i", "repo=.", "-i", "rev=HEAD:big"}
	cmd := y.command(y.program, append(in, "--json")...)
	cmd.Dir = y.repo
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v %.300s", err, out)
	}
	var r struct {
		Result struct {
			Stdout    string
			Truncated bool
		}
	}
	decode(t, string(out), &r)
	if !r.Result.Truncated || len(r.Result.Stdout) != bailey.OutputCap {
		t.Errorf("as JSON: %d bytes, truncated %v", len(r.Result.Stdout), r.Result.Truncated)
	}

	cmd = y.command(y.program, in...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = y.repo, &stderr
	if out, err = cmd.Output(); err != nil || len(out) != bailey.OutputCap || !strings.Contains(stderr.String(), "was truncated at") {
		t.Errorf("as a stream: %d bytes, %v, %s", len(out), err, &stderr)
	}

	s := y.serve(y.repo)
	s.call(1, "git_show", `{"repo":".","rev":"HEAD:big"}`)
	if text := s.hear(); len(text) < bailey.OutputCap || !strings.Contains(text, "truncated") {
		t.Errorf("over MCP: %d bytes: %.300s", len(text), text)
	}
	s.in.Close()
	s.cmd.Wait()

	// A reader that stops early. The shell writes the exit code of the client to the file.
	script := fmt.Sprintf(`{ "%s" run git.show -i repo=. -i rev=HEAD:big; echo $? >"$1"; } | head -n 1`, y.program)
	cmd = y.command("sh", "-c", script, "sh", filepath.Join(y.repo, "..", "code"))
	cmd.Dir = y.repo
	if out, err = cmd.Output(); err != nil || string(out) != line {
		t.Errorf("head: %v %.100q", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(y.repo, "..", "code")); err != nil || string(b) != "141\n" {
		t.Errorf("a closed stdout ends the client with %q, %v; want 141", b, err)
	}
	y.await("four outcomes and that of echo", func() bool { n := y.tally(); return n[bailey.OK]+n[bailey.Killed] == 5 && n[""] == 0 })
	y.verified(5)
	if grown := memory(t, y.gateway(), "VmHWM") - before; grown > 64<<10 {
		t.Errorf("the gateway grew by %d KiB", grown)
	} else {
		t.Logf("the gateway grew by %d KiB over %d", grown, before)
	}
}

// TestSignalsToTheClient checks that if the client is killed, the tool dies too, its receipt says killed, and the exit
// code is that of a shell.
func TestSignalsToTheClient(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	dir := y.hang()
	y.must(y.program, "run", "system.echo", "-i", "message=start")
	killed := 0
	for _, door := range []string{"run", "run --json", "serve"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGKILL} {
			if door == "serve" && sig == syscall.SIGPIPE {
				continue // a server gets an error if it writes to a closed pipe, and a lost gateway does not end it
			}
			t.Run(door+" "+sig.String(), func(t *testing.T) {
				var cmd *exec.Cmd
				var said *bytes.Buffer
				if door == "serve" {
					s := y.serve(dir)
					s.call(1, "git_status", `{"repo":"."}`)
					cmd, said = s.cmd, &bytes.Buffer{}
				} else {
					cmd, said = y.run(dir, append(strings.Fields(door), "git.status", "-i", "repo=.")...)
				}
				y.await("git in its cage", func() bool { return howMany(below(t, y.gateway()), "git") == 1 })
				cmd.Process.Signal(sig)
				cmd.Wait()
				if code(cmd) != 128+int(sig) {
					t.Errorf("exit code %d, want %d: %s", code(cmd), 128+int(sig), said)
				}
				killed++
				y.await("the outcome", func() bool { n := y.tally(); return n[bailey.Killed] == killed && n[""] == 0 })
				y.await("the end of git", func() bool { return howMany(below(t, y.gateway()), "git") == 0 })
			})
		}
	}
	y.verified(1 + killed)
}
