package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"bailey/test/since"
)

// checks is one run of the checks, with its results so far.
type checks struct {
	out     io.Writer
	dir     string // the top directory of the repository
	changes since.Changes
	reports []*report
}

// A report holds the results of one part, in the form that .ci/full stores.
type report struct {
	Part    string        `json:"part"`
	Tree    string        `json:"tree,omitempty"`   // the git tree that was tested
	Commit  string        `json:"commit,omitempty"` // the commit of this tree; empty if changes were not committed
	Seconds float64       `json:"seconds"`
	Passed  []string      `json:"passed"` // "PACKAGE TEST", including subtests
	Skipped []skippedTest `json:"skipped"`
	Failed  []failedTest  `json:"-"`
	Flaky   []string      `json:"flaky"` // "PACKAGE TEST"
	Notes   []string      `json:"notes"` // lines for the end of the output
}

type skippedTest struct{ Package, Test, Reason string }

type failedTest struct{ Package, Test, Output string }

// goTest is one invocation of "go test".
type goTest struct {
	program  []string // instead of "go test"
	as       string   // suffix for the names of tests that also run in another way
	flags    []string
	packages []string
	env      []string
	shows    *regexp.Regexp // output lines to print even if their test passed
	long     float64        // of a failed package that took longer than this, in seconds, only failed tests run again; 0: all do
	slow     float64        // report tests that take longer than this, in seconds; 0 reports none
}

// runTests runs tests. If a package fails, it is tested once more, alone.
func (c *checks) runTests(ctx context.Context, r *report, t goTest) error {
	if len(t.packages) == 0 {
		return nil
	}
	first, err := c.runGoTest(ctx, t)
	if err != nil {
		return err
	}
	first.addToReport(r, t.as)
	bad := 0
	for _, pkg := range first.failedPackages() {
		var names []string
		for _, f := range first.failedTests(pkg) {
			names = append(names, f.Test)
		}
		fmt.Fprintf(c.out, "once more, alone: %s, of which failed: %s\n", pkg, strings.Join(names, " "))
		again := t
		again.packages, again.flags = []string{pkg}, append(slices.Clone(t.flags), "-count=1")
		if t.long > 0 && first.took[testName{pkg, ""}] > t.long {
			again.flags = append(again.flags, first.onlyFailed(pkg)...)
		}
		second, err := c.runGoTest(ctx, again)
		if err != nil {
			return err
		}
		if len(second.failedPackages()) == 0 {
			second.addToReport(r, t.as)
			for _, f := range first.failedTests(pkg) {
				r.Flaky = append(r.Flaky, f.Package+" "+f.Test+t.as)
				fmt.Fprintf(c.out, "\n--- FLAKY: %s %s\n%s", f.Package, f.Test, lastLines(f.Output, 40))
			}
			continue
		}
		bad++
		r.Failed = append(r.Failed, second.failedTests(pkg)...)
	}
	if bad > 0 {
		return fmt.Errorf("the tests of %d packages failed twice", bad)
	}
	return nil
}

// runGoTest runs "go test -json" and reads its output.
func (c *checks) runGoTest(ctx context.Context, t goTest) (*results, error) {
	words := slices.Concat(t.program, []string{"-json"}, t.flags, t.packages)
	if t.program == nil {
		words = append([]string{"go", "test"}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), t.env...)
	return c.runTestCommand(ctx, cmd, t)
}

// runTestCommand starts a command that prints the events of "go test -json" and reads them to the end.
func (c *checks) runTestCommand(ctx context.Context, cmd *exec.Cmd, t goTest) (*results, error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errs := &strings.Builder{}
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	res := newResults()
	res.readEvents(out, c.out, t)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil && len(res.failedPackages()) == 0 { // the command could not even start
		return nil, fmt.Errorf("%w\n%s%s", err, res.rest.String(), errs)
	}
	return res, nil
}

// An event is one line of "go test -json"; see "go doc test2json".
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

type testName struct{ pkg, test string }

// note is a line for the end of the output. It is printed only if its test passed.
type note struct {
	of   testName
	text string
}

// results holds the results of tests, by package and test. The test "" is the package itself.
type results struct {
	ends   map[testName]string // "pass", "fail" or "skip"; "run" if it did not end
	took   map[testName]float64
	output map[testName]*strings.Builder // of tests that did not pass
	built  map[string]*strings.Builder
	notes  []note
	rest   strings.Builder // lines that are not events
}

func newResults() *results {
	return &results{ends: map[testName]string{}, took: map[testName]float64{}, output: map[testName]*strings.Builder{}, built: map[string]*strings.Builder{}}
}

// verdictLine matches the line that go test prints at the end of a package.
var verdictLine = regexp.MustCompile(`^(ok  |FAIL)\t`)

// partialTestLine matches lines of passing tests that say that a part was omitted.
var partialTestLine = regexp.MustCompile(`_test\.go:[0-9]+: needs `)

// readEvents processes events until the end of the input, and prints a line for each package.
func (r *results) readEvents(from io.Reader, to io.Writer, t goTest) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				r.rest.Write(line)
			} else {
				r.addEvent(e, to, t)
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *results) addEvent(e event, to io.Writer, t goTest) {
	n := testName{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		appendText(r.built, e.ImportPath, e.Output)
	case "run":
		r.ends[n] = "run"
	case "output":
		appendText(r.output, n, e.Output)
		if e.Test == "" && verdictLine.MatchString(e.Output) {
			io.WriteString(to, e.Output)
		}
		if partialTestLine.MatchString(e.Output) {
			r.notes = append(r.notes, note{n, e.Package + " " + e.Test + ": " + strings.TrimSpace(e.Output)})
		}
		if t.shows != nil && t.shows.MatchString(e.Output) {
			io.WriteString(to, e.Output)
		}
	case "pass", "fail", "skip":
		r.ends[n], r.took[n] = e.Action, e.Elapsed
		if e.Action == "pass" {
			delete(r.output, n)
		}
		if e.FailedBuild != "" {
			if b := r.built[e.FailedBuild]; b != nil {
				appendText(r.output, n, b.String())
			}
		}
		if t.slow > 0 && e.Elapsed > t.slow && e.Test != "" && !strings.Contains(e.Test, "/") {
			r.notes = append(r.notes, note{n, fmt.Sprintf("SLOW: %s %s %.2f s", e.Package, e.Test, e.Elapsed)})
		}
	}
}

func appendText[K comparable](to map[K]*strings.Builder, key K, text string) {
	if to[key] == nil {
		to[key] = &strings.Builder{}
	}
	to[key].WriteString(text)
}

// addToReport adds passed and skipped tests to a report.
func (r *results) addToReport(to *report, as string) {
	for n, end := range r.sortedEnds() {
		switch {
		case n.test == "":
		case end == "pass":
			to.Passed = append(to.Passed, n.pkg+" "+n.test+as)
		case end == "skip":
			to.Skipped = append(to.Skipped, skippedTest{n.pkg, n.test + as, skipReason(r.output[n])})
		}
	}
	for _, n := range r.notes {
		if r.ends[n.of] == "pass" {
			to.Notes = append(to.Notes, n.text)
		}
	}
}

func (r *results) failedPackages() (all []string) {
	for n, end := range r.sortedEnds() {
		if n.test == "" && end == "fail" {
			all = append(all, n.pkg)
		}
	}
	return all
}

// failedTests returns the tests of a package that failed or did not end. If there are none, the package itself is the
// failure, because it was not built or exited early.
func (r *results) failedTests(pkg string) (all []failedTest) {
	own := builderText(r.output[testName{pkg, ""}])
	for n, end := range r.sortedEnds() {
		switch {
		case n.pkg != pkg || n.test == "":
		case end == "fail":
			all = append(all, failedTest{pkg, n.test, builderText(r.output[n])})
		case end == "run": // the package ended before the test
			all = append(all, failedTest{pkg, n.test, builderText(r.output[n]) + own})
		}
	}
	if len(all) == 0 {
		all = append(all, failedTest{pkg, "(package)", own})
	}
	return all
}

// onlyFailed returns the flag that selects the failed tests of a package. It returns nothing if a test did not end: then
// the program ended too, and the tests after it did not run.
func (r *results) onlyFailed(pkg string) (flags []string) {
	var tops []string
	for n, end := range r.sortedEnds() {
		switch top, _, sub := strings.Cut(n.test, "/"); {
		case n.pkg != pkg || n.test == "" || sub:
		case end == "run":
			return nil
		case end == "fail":
			tops = append(tops, top)
		}
	}
	if len(tops) == 0 {
		return nil
	}
	return []string{"-run=^(" + strings.Join(tops, "|") + ")$"}
}

func (r *results) sortedEnds() func(func(testName, string) bool) {
	keys := slices.SortedFunc(maps.Keys(r.ends), func(a, b testName) int {
		return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test)
	})
	return func(yield func(testName, string) bool) {
		for _, n := range keys {
			if !yield(n, r.ends[n]) {
				return
			}
		}
	}
}

func builderText(b *strings.Builder) string {
	if b == nil {
		return ""
	}
	return b.String()
}

var testPosition = regexp.MustCompile(`^\s*\S+_test\.go:\d+: `)

// skipReason returns why a test was skipped: the first line that it printed itself.
func skipReason(output *strings.Builder) string {
	for line := range strings.Lines(builderText(output)) {
		if testPosition.MatchString(line) {
			return strings.TrimSpace(testPosition.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}
