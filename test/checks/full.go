package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey/test/since"
)

// runFull runs everything, or the named parts. The result of a part is stored for the state of the tree that it tested, so
// if full is run again without names, it continues after an interruption. When every part has passed on a commit, the
// commit is recorded.
func (c *checks) runFull(ctx context.Context, names []string) error {
	begin := time.Now()
	c.changes = since.Changes{} // everything counts as changed
	all, err := c.listPackages(ctx)
	if err != nil {
		return err
	}
	parts := c.allParts(all)
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return fmt.Errorf("no part %q; the parts are %s", n, partNames(parts))
		}
	}
	tree, err := c.treeID(ctx)
	if err != nil {
		return err
	}
	took, missing := 0.0, []string{}
	var bad []error
	for _, p := range parts {
		kept := filepath.Join(keptDir(), "full-"+strings.ReplaceAll(p.name, " ", "-")+".json")
		again := slices.Contains(names, p.name)
		r := loadReport(kept, tree)
		switch {
		case r != nil && !again:
			c.printHeading("%s: passed before, in %.0f s", p.name, r.Seconds)
			c.reports = append(c.reports, r)
		case len(names) > 0 && !again:
			missing = append(missing, p.name)
			continue
		default:
			if err := c.runPart(ctx, p, p.full); err != nil {
				bad = append(bad, err)
				continue
			}
			r = c.reports[len(c.reports)-1]
			r.Tree = tree
			if err := r.saveReport(kept); err != nil {
				return err
			}
		}
		took += r.Seconds
	}
	if err := errors.Join(bad...); err != nil {
		return c.printFailures(err)
	}
	c.printPassed(time.Since(begin))
	if len(missing) > 0 {
		fmt.Fprintf(c.out, "not recorded: these parts have not passed: %s\n", strings.Join(missing, ", "))
		return nil
	}
	return c.recordPass(ctx, took)
}

// recordPass writes the commit that passed into the tracked file. If the tree has uncommitted changes, nothing is recorded.
func (c *checks) recordPass(ctx context.Context, took float64) error {
	dirty, err := c.commandOutput(ctx, "git", "status", "--porcelain", "--", ".", ":!"+since.Record)
	if err != nil {
		return err
	}
	if dirty != "" {
		fmt.Fprintln(c.out, "not recorded: the working tree has changes that are not committed")
		return nil
	}
	head, err := c.commandOutput(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s %s, all parts in %.0f min\n", strings.TrimSpace(head), time.Now().UTC().Format(time.DateOnly), took/60)
	if err := os.WriteFile(filepath.Join(c.dir, since.Record), []byte(line), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "recorded in %s: %s", since.Record, line)
	return nil
}

// treeID returns a name for the state of the files, including uncommitted ones but without the record.
func (c *checks) treeID(ctx context.Context) (string, error) {
	work, err := os.MkdirTemp("", "checks-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	index := "GIT_INDEX_FILE=" + filepath.Join(work, "index")
	for _, words := range [][]string{{"read-tree", "HEAD"}, {"add", "-A"}, {"rm", "-q", "--cached", "--ignore-unmatch", since.Record}} {
		if _, err := c.outputWith(ctx, []string{index}, append([]string{"git"}, words...)...); err != nil {
			return "", err
		}
	}
	out, err := c.outputWith(ctx, []string{index}, "git", "write-tree")
	return strings.TrimSpace(out), err
}

// keptDir returns the directory of stored results. It is outside the tree, so that a new clone of the same commit can
// use them.
func keptDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "bailey-checks")
}

// loadReport reads a stored report. It returns nil if none exists for this tree.
func loadReport(file, tree string) *report {
	data, err := os.ReadFile(file)
	r := &report{}
	if err != nil || json.Unmarshal(data, r) != nil || r.Tree != tree {
		return nil
	}
	return r
}

func (r *report) saveReport(file string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func partNames(parts []part) string {
	var names []string
	for _, p := range parts {
		names = append(names, fmt.Sprintf("%q", p.name))
	}
	return strings.Join(names, ", ")
}
