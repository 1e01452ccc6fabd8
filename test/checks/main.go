// Command checks runs the checks of this repository. The scripts in .ci prepare a machine and start it:
//
//	checks run              checks that every change must pass; .ci/run
//	checks full [PART…]     everything, in parts whose results are kept; .ci/full
//	checks stress [PACKAGE…] tests beside a load, many times; .ci/stress
//
// If the tests of a package fail, it is tested once more, alone. If it then passes, the checks continue and print it as
// FLAKY among the last lines. If it fails again, the checks fail, and the output of the failing tests comes last.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bailey/test/since"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "checks:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command; want run, full or stress")
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return fmt.Errorf("start it at the top of the repository: %w", err)
	}
	changes, err := since.Read(dir)
	if err != nil {
		return err
	}
	c := &checks{out: os.Stdout, dir: dir, changes: changes}
	switch args[0] {
	case "run":
		return c.runDueParts(ctx)
	case "full":
		return c.runFull(ctx, args[1:])
	case "stress":
		return c.runStress(ctx, args[1:])
	}
	return fmt.Errorf("no command %q; want run, full or stress", args[0])
}

// runDueParts runs the checks that every change must pass. Checks that take long, or that depend only on the kernel or the
// user, run for files that changed since .ci/full last passed.
func (c *checks) runDueParts(ctx context.Context) error {
	switch n := len(c.changes.Files); {
	case c.changes.Everything():
		c.printHeading("no full run is recorded in %s: everything counts as changed", since.Record)
	default:
		c.printHeading("%d files changed since .ci/full passed on %.12s, and the comments of %d", n, c.changes.Commit, len(c.changes.Comments))
	}
	begin := time.Now()
	all, err := c.listPackages(ctx)
	if err != nil {
		return err
	}
	var bad []error // a failing part must not hide the results of the others
	for _, p := range c.allParts(all) {
		if p.run != nil && p.due() {
			bad = append(bad, c.runPart(ctx, p, p.run))
		}
	}
	if err := errors.Join(bad...); err != nil {
		return c.printFailures(err)
	}
	c.printPassed(time.Since(begin))
	return nil
}

// printHeading starts a new paragraph of the output.
func (c *checks) printHeading(format string, args ...any) {
	fmt.Fprintf(c.out, "\n== "+format+"\n", args...)
}

// runPart runs one part and records its report.
func (c *checks) runPart(ctx context.Context, p part, run func(context.Context, *report) error) error {
	c.printHeading("%s", p.name)
	begin := time.Now()
	r := &report{Part: p.name}
	err := run(ctx, r)
	r.Seconds = time.Since(begin).Seconds()
	c.reports = append(c.reports, r)
	fmt.Fprintf(c.out, "%s: %.0f s\n", p.name, r.Seconds)
	if err != nil {
		err = fmt.Errorf("%s: %w", p.name, err)
		fmt.Fprintln(c.out, err)
	}
	return err
}

// printFailures prints the summary, and then the output of the failing tests.
func (c *checks) printFailures(err error) error {
	c.printSummary()
	for _, r := range c.reports {
		for _, f := range r.Failed {
			fmt.Fprintf(c.out, "\n--- FAILED: %s %s\n%s", f.Package, f.Test, lastLines(f.Output, 80))
		}
	}
	return err
}

// printPassed prints the summary of passed checks. The line with the counts comes last.
func (c *checks) printPassed(took time.Duration) {
	c.printSummary()
	passed, skipped := 0, len(c.skippedTests())
	for _, r := range c.reports {
		passed += len(r.Passed)
	}
	fmt.Fprintf(c.out, "passed in %.0f s\n%d passed, 0 failed, %d skipped\n", took.Seconds(), passed, skipped)
}

// printSummary prints the skipped, slow and flaky tests.
func (c *checks) printSummary() {
	c.printHeading("skipped")
	for _, s := range c.skippedTests() {
		fmt.Fprintf(c.out, "%s %s: %s\n", s.Package, s.Test, s.Reason)
	}
	for _, r := range c.reports {
		for _, note := range r.Notes {
			fmt.Fprintln(c.out, note)
		}
	}
	c.printHeading("result")
	for _, r := range c.reports {
		for _, f := range r.Flaky {
			fmt.Fprintln(c.out, "FLAKY:", f)
		}
	}
}

// skippedTests returns the tests that were skipped and did not pass in any part.
func (c *checks) skippedTests() []skippedTest {
	ran := map[string]bool{}
	for _, r := range c.reports {
		for _, name := range r.Passed {
			ran[name] = true
		}
	}
	var all []skippedTest
	for _, r := range c.reports {
		for _, s := range r.Skipped {
			if name := s.Package + " " + s.Test; !ran[name] {
				ran[name] = true // once
				all = append(all, s)
			}
		}
	}
	return all
}

// lastLines returns the end of the output of tests, at most the given number of lines. If there are more, lines that only
// say which tests ran are dropped first.
func lastLines(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	if len(all) > lines {
		all = slices.DeleteFunc(all, func(line string) bool {
			line = strings.TrimSpace(line)
			return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- PASS") || strings.HasPrefix(line, "--- SKIP")
		})
	}
	if n := len(all) - lines; n > 0 {
		return fmt.Sprintf("… %d lines before\n%s", n, strings.Join(all[n:], ""))
	}
	return strings.Join(all, "")
}
