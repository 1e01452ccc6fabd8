package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	shortRuns = 20 // with -short
	fullRuns  = 3  // without -short, for packages that skip tests with it
	busy      = 4  // load processes beside the tests
)

// A tally is the stored stress result of one package.
type stressResult struct {
	Package string         `json:"package"`
	Source  string         `json:"source"` // digest of the source of the package and of its imports in this module
	Short   int            `json:"short"`  // runs with -short
	Full    int            `json:"full"`   // runs without -short
	Seconds float64        `json:"seconds"`
	Failed  map[string]int `json:"failed"` // number of failures of each test
	Output  []string       `json:"-"`
}

// runStress runs the tests of packages many times beside a load, and lists the failures. A package is done when its source
// has been tested often enough. If a stress was interrupted, its completed runs count.
func (c *checks) runStress(ctx context.Context, names []string) error {
	if len(names) == 1 && names[0] == "busy" {
		return spinUntilEOF()
	}
	if len(names) == 0 {
		names = []string{"./..."}
	}
	out, err := c.commandOutput(ctx, append([]string{"go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, names...)...)
	if err != nil {
		return err
	}
	release, err := startLoad(ctx, "stress", "busy")
	if err != nil {
		return err
	}
	defer release()
	var all []*stressResult
	for line := range strings.Lines(out) {
		pkg, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		t, err := c.stressPackage(ctx, pkg, dir)
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	c.printHeading("what failed beside a load of %d busy processes", busy)
	bad := 0
	for _, t := range all {
		for _, test := range slices.Sorted(maps.Keys(t.Failed)) {
			bad++
			fmt.Fprintf(c.out, "%s %s: %d of %d runs with -short and %d without\n", t.Package, test, t.Failed[test], t.Short, t.Full)
		}
	}
	fmt.Fprintf(c.out, "%d packages, %d tests failed\n", len(all), bad)
	if bad > 0 {
		return fmt.Errorf("%d tests fail intermittently", bad)
	}
	return nil
}

// stressPackage completes the runs of one package.
func (c *checks) stressPackage(ctx context.Context, pkg, dir string) (*stressResult, error) {
	source, err := c.sourceDigest(ctx, pkg)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(keptDir(), "stress-"+strings.ReplaceAll(pkg, "/", "-")+".json")
	t := &stressResult{}
	if data, err := os.ReadFile(file); err != nil || json.Unmarshal(data, t) != nil || t.Source != source {
		t = &stressResult{Package: pkg, Source: source}
	}
	if t.Failed == nil {
		t.Failed = map[string]int{}
	}
	work, err := os.MkdirTemp("", "stress-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil { // some tests run as another user
		return nil, err
	}
	program := filepath.Join(work, "tests")
	if _, err := c.commandOutput(ctx, "go", "test", "-c", "-vet=off", "-o", program, pkg); err != nil {
		return nil, err
	}
	long, err := leavesOut(dir)
	if err != nil {
		return nil, err
	}
	one := func(n *int, flags ...string) error {
		begin := time.Now()
		words := append([]string{"go", "tool", "test2json", "-t", "-p", pkg, program, "-test.v=test2json", "-test.count=1", "-test.timeout=30m"}, flags...)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir = dir
		res, err := c.withoutOutput().runTestCommand(ctx, cmd, goTest{})
		if err != nil {
			return err
		}
		*n++
		t.Seconds += time.Since(begin).Seconds()
		if len(res.failedPackages()) > 0 {
			for _, f := range res.failedTests(pkg) {
				t.Failed[f.Test]++
				fmt.Fprintf(c.out, "\n--- FAIL: %s %s\n%s", f.Package, f.Test, lastLines(f.Output, 40))
			}
		}
		return t.saveTally(file)
	}
	for t.Short < shortRuns {
		if err := one(&t.Short, "-test.short"); err != nil {
			return nil, err
		}
	}
	for long && t.Full < fullRuns {
		if err := one(&t.Full); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(c.out, "%s: %d runs with -short, %d without, %.0f s, %d tests failed\n", pkg, t.Short, t.Full, t.Seconds, len(t.Failed))
	return t, nil
}

func (t *stressResult) saveTally(file string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// sourceDigest returns a digest of every file in the directories of a package and of all packages of this module that it or
// its tests import.
func (c *checks) sourceDigest(ctx context.Context, pkg string) (string, error) {
	out, err := c.commandOutput(ctx, "go", "list", "-deps", "-test", "-f", "{{if and .Module .Module.Main}}{{.Dir}}{{end}}", pkg)
	if err != nil {
		return "", err
	}
	dirs := strings.Fields(out)
	slices.Sort(dirs)
	sum := sha256.New()
	for _, dir := range slices.Compact(dirs) {
		for _, sub := range []string{dir, filepath.Join(dir, "testdata")} {
			files, err := os.ReadDir(sub)
			if err != nil && !os.IsNotExist(err) {
				return "", err
			}
			for _, f := range files {
				if !f.Type().IsRegular() {
					continue
				}
				data, err := os.ReadFile(filepath.Join(sub, f.Name()))
				if err != nil {
					return "", err
				}
				fmt.Fprintf(sum, "%s %d\n%s", f.Name(), len(data), data)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// leavesOut reports whether a package has tests that check for -short.
func leavesOut(dir string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return false, err
		}
		if strings.Contains(string(data), "testing.Short()") || strings.Contains(string(data), "ktest.Long(") {
			return true, nil
		}
	}
	return false, nil
}

// withoutOutput returns the same checks without a line for each package.
func (c *checks) withoutOutput() *checks {
	q := *c
	q.out = io.Discard
	return &q
}

// startLoad starts this program as the load processes. They end when this process ends in any way, because their
// standard input then ends.
func startLoad(ctx context.Context, args ...string) (release func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ends []func()
	for range busy {
		cmd := exec.CommandContext(ctx, self, args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		ends = append(ends, func() { in.Close(); cmd.Wait() })
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}, nil
}

// spinUntilEOF keeps one processor busy until the end of its standard input.
func spinUntilEOF() error {
	go func() {
		for sum := sha256.Sum256(nil); ; sum = sha256.Sum256(sum[:]) {
		}
	}()
	_, err := bufio.NewReader(os.Stdin).ReadByte()
	if err == io.EOF {
		return nil
	}
	return err
}
