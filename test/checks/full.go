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
// if full is run again without names, it continues after an interruption. When every part has passed, on this commit or
// on one before it, a commit is recorded.
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
	commit, err := c.committedHead(ctx)
	if err != nil {
		return err
	}
	var bad []error
	for _, p := range parts {
		again := slices.Contains(names, p.name)
		r := loadReport(keptFile(p.name))
		switch {
		case r != nil && r.Tree == tree && !again:
			c.printHeading("%s: passed before, in %.0f s", p.name, r.Seconds)
			c.reports = append(c.reports, r)
		case len(names) > 0 && !again:
		default:
			if err := c.runPart(ctx, p, p.full); err != nil {
				bad = append(bad, err)
				continue
			}
			r = c.reports[len(c.reports)-1]
			r.Tree, r.Commit = tree, commit
			if err := r.saveReport(keptFile(p.name)); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(bad...); err != nil {
		return c.printFailures(err)
	}
	c.printPassed(time.Since(begin))
	return c.recordPass(ctx, parts)
}

// committedHead returns the commit of the working tree, or nothing if the tree has changes that are not committed.
func (c *checks) committedHead(ctx context.Context) (string, error) {
	dirty, err := c.commandOutput(ctx, "git", "status", "--porcelain", "--", ".", ":!"+since.Record)
	if err != nil || dirty != "" {
		return "", err
	}
	head, err := c.commandOutput(ctx, "git", "rev-parse", "HEAD")
	return strings.TrimSpace(head), err
}

// recordPass writes a commit into the tracked file if every part has passed on it or on a later commit, up to HEAD. It is
// the newest such commit: .ci/run then tests all files that changed since any of the parts passed. So a fault that one
// part finds can be mended without another run of the other parts.
func (c *checks) recordPass(ctx context.Context, parts []part) error {
	head, err := c.committedHead(ctx)
	if err != nil {
		return err
	}
	if head == "" {
		fmt.Fprintln(c.out, "not recorded: the working tree has changes that are not committed")
		return nil
	}
	took, commits, missing := 0.0, []string{head}, []string{}
	for _, p := range parts {
		r := loadReport(keptFile(p.name))
		if r == nil || r.Commit == "" || !c.isAncestor(ctx, r.Commit, head) {
			missing = append(missing, p.name)
			continue
		}
		took += r.Seconds
		commits = append(commits, r.Commit)
	}
	if len(missing) > 0 {
		fmt.Fprintf(c.out, "not recorded: these parts have not passed on this commit or one before it: %s\n", strings.Join(missing, ", "))
		return nil
	}
	base, err := c.commandOutput(ctx, append([]string{"git", "merge-base", "--octopus"}, commits...)...)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s %s, all parts in %.0f min\n", strings.TrimSpace(base), time.Now().UTC().Format(time.DateOnly), took/60)
	if err := os.WriteFile(filepath.Join(c.dir, since.Record), []byte(line), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "recorded in %s: %s", since.Record, line)
	return nil
}

// isAncestor reports whether a commit is another one or comes before it. A commit that does not exist here is not.
func (c *checks) isAncestor(ctx context.Context, commit, of string) bool {
	_, err := c.commandOutput(ctx, "git", "merge-base", "--is-ancestor", commit, of)
	return err == nil
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

// keptFile returns the file of a part's stored result. It is outside the tree, so that a new clone of the same commit can
// use it.
func keptFile(part string) string {
	return filepath.Join(keptDir(), "full-"+strings.ReplaceAll(part, " ", "-")+".json")
}

// keptDir returns the directory of stored results.
func keptDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "bailey-checks")
}

// loadReport reads a stored report. It returns nil if none exists.
func loadReport(file string) *report {
	data, err := os.ReadFile(file)
	r := &report{}
	if err != nil || json.Unmarshal(data, r) != nil || r.Tree == "" {
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
