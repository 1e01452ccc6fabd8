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

// module is the npm module of the reference implementation.
const module = "@cedar-policy/cedar-wasm"

// modules returns the directory into which npm installed the module: $BAILEY_CEDAR_WASM, or the node_modules directory
// of a program directory on PATH (node_modules/.bin).
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
	return "", errors.New(module + " is missing: npm install it, and set BAILEY_CEDAR_WASM to its node_modules directory")
}

// oracle is the reference implementation as a process that answers each line with a line.
type oracle struct {
	in  io.Writer
	out *bufio.Reader
}

// job is one line for the oracle.
type job struct {
	Op       string            `json:"op"` // version, validate or authorize
	Schema   string            `json:"schema,omitempty"`
	Rules    map[string]string `json:"rules"`
	Requests []question        `json:"requests,omitempty"`
}

// answer is the oracle's answer to a job.
type answer struct {
	Failure string              `json:"failure"`
	Version string              `json:"version"`
	Parse   map[string]string   `json:"parse"`  // rule → why it does not parse
	Errors  map[string][]string `json:"errors"` // rule → errors of the validator
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
	// Without the flag, the compiler of node 20 ends the process when it deoptimizes such an inlined call.
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

// ask sends the jobs and waits for their answers, in order. A goroutine writes the jobs, because the pipe for the
// answers may be full before all jobs are written.
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
