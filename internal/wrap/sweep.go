//go:build linux

package wrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey"
)

// Limits on kept homes of tools: each cache keeps those of the most recent projects, for a limited time.
const (
	maxKept = 32
	keptFor = 30 * 24 * time.Hour
)

// Sweep settles killed runs of tools below dir, reports their effects, and then deletes homes beyond the limits. A
// gateway calls it at its start, when no tool runs. If something cannot be settled, Sweep reports that too, and the
// next start tries again: a tool's effect on one project must not stop the gateway.
func Sweep(dir string) (words []string, err error) {
	caches, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, c := range caches {
		if !c.IsDir() {
			continue
		}
		s := State(filepath.Join(dir, c.Name()))
		left, lerr := s.Left("")
		words = append(words, describeUnsettled(lerr)...)
		for _, r := range left {
			settled, serr := r.Settle()
			words = append(append(words, settled.Words(r.Project)...), describeUnsettled(serr)...)
		}
		words = append(words, describeUnsettled(s.sweepHomes(time.Now()))...)
	}
	return words, err
}

// describeUnsettled describes an error and its remedy to a person.
func describeUnsettled(err error) []string {
	if err == nil {
		return nil
	}
	return []string{strings.TrimSuffix(fmt.Sprintf("not settled, and tried again at the next start: %v: %s", err,
		bailey.HintOf(err)), ": ")}
}

// sweepHomes first moves homes that are too old or too many to another directory. If it is killed halfway, no partial cache
// is left.
func (s State) sweepHomes(now time.Time) (err error) {
	homes, err := filepath.Glob(s.joinPath("*", "home"))
	fetched, ferr := filepath.Glob(s.joinPath("*", "fetched"))
	if homes = append(homes, fetched...); err != nil || ferr != nil || len(homes) == 0 {
		return errors.Join(err, ferr)
	}
	used := map[string]time.Time{}
	for _, h := range homes {
		if info, err := os.Stat(filepath.Dir(h)); err == nil {
			used[filepath.Dir(h)] = info.ModTime()
		}
	}
	dirs := make([]string, 0, len(used))
	for d := range used {
		dirs = append(dirs, d)
	}
	slices.SortFunc(dirs, func(a, b string) int { return used[b].Compare(used[a]) })
	for i, d := range dirs {
		os.RemoveAll(filepath.Join(d, "home", ".tmp")) // of killed tools
		os.RemoveAll(filepath.Join(d, "fetched", ".tmp"))
		if i < maxKept && now.Sub(used[d]) < keptFor {
			continue
		}
		gone := s.joinPath("fresh", newID())
		if merr := errors.Join(makePrivateDir(s.joinPath("fresh")), os.Rename(d, gone)); merr != nil {
			err = errors.Join(err, merr)
		}
	}
	trash, _ := filepath.Glob(s.joinPath("fresh", "*"))
	for _, t := range trash {
		err = errors.Join(err, removeTree(t))
	}
	return err
}
