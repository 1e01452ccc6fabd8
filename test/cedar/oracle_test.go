package cedar

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"bailey/internal/ktest"
)

// module is the reference implementation, from npm.
const module = "@cedar-policy/cedar-wasm"

// modules finds the directory that npm put the module into: $BAILEY_CEDAR_WASM, or the one that a directory of
// programs on PATH belongs to (node_modules/.bin).
func modules() (string, error) {
	for _, dir := range append([]string{os.Getenv("BAILEY_CEDAR_WASM")}, filepath.SplitList(os.Getenv("PATH"))...) {
		if filepath.Base(dir) == ".bin" {
			dir = filepath.Dir(dir)
		}
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, module, "package.json")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New(module + " is not there: npm install it, and set BAILEY_CEDAR_WASM to its node_modules directory")
}

// oracle is the reference as a process that answers a line for a line.
type oracle struct {
	in  io.Writer
	out *bufio.Reader
}

// job is one line to the oracle.
type job struct {
	Op       string            `json:"op"` // version, validate, authorize
	Schema   string            `json:"schema,omitempty"`
	Rules    map[string]string `json:"rules"`
	Requests []question        `json:"requests,omitempty"`
}

// answer is what it says to a job.
type answer struct {
	Failure string              `json:"failure"`
	Version string              `json:"version"`
	Parse   map[string]string   `json:"parse"`  // rule → why it does not parse
	Errors  map[string][]string `json:"errors"` // rule → what the validator finds
	Answers []verdict           `json:"answers"`
}

// verdict is one raw decision of Cedar.
type verdict struct {
	Failure  string   `json:"failure,omitempty"`
	Decision string   `json:"decision"`
	Reasons  []string `json:"reasons"`
	Errors   []string `json:"errors"`
}

func newOracle(t testing.TB) *oracle {
	t.Helper()
	ktest.Require(t, "node")
	dir, err := modules()
	if err != nil {
		ktest.Missing(t, "cedar-wasm", err)
	}
	// The flag is for node 20, whose compiler ends the process when it takes back such an inlined call.
	cmd := exec.Command("node", "--no-turbo-inline-js-wasm-calls", "oracle.mjs", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	o := &oracle{in, bufio.NewReaderSize(out, 1<<20)}
	got, err := o.ask(job{Op: "version"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the reference is cedar %s", got[0].Version)
	return o
}

// ask sends the jobs and waits for their answers, in order. They are written aside: the pipe back may fill first.
func (o *oracle) ask(jobs ...job) ([]answer, error) {
	sent := make(chan error, 1)
	go func() {
		w := json.NewEncoder(o.in)
		w.SetEscapeHTML(false)
		for _, j := range jobs {
			if err := w.Encode(j); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	out := make([]answer, len(jobs))
	for i := range out {
		line, err := o.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("the oracle ended: %w", err)
		}
		if err := json.Unmarshal(line, &out[i]); err != nil {
			return nil, fmt.Errorf("the oracle says %q: %w", line, err)
		}
	}
	return out, <-sent
}
