//go:build linux

package wrap

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bailey"
)

// moduleCache is the place of the modules that a call of the Go tool has downloaded, below its HOME.
const moduleCache = "go/pkg/mod"

// maxGoSum limits how much of a go.sum is read, in bytes.
const maxGoSum = 4 << 20

// chooseModules shows a build of Go one of two module caches, read-only, because the Go tool accepts only one: that of calls
// that downloaded modules for the project, or, if it has more of the modules of go.sum, that of the user. The usual place
// counts, not GOPATH or GOMODCACHE, because an agent could set them for a gateway that it starts. missing are the modules
// that the cache lacks.
func chooseModules(job *bailey.Job, wall *bailey.Wall, fetched, home string) (missing []string) {
	at := slices.Index(job.Env, "GOMODCACHE="+bailey.FetchedDir+"/"+moduleCache)
	if at < 0 {
		return nil
	}
	modules := readGoSum(job.Dir)
	missing = missingModules(filepath.Join(fetched, moduleCache), modules)
	if len(missing) == 0 {
		return nil
	}
	own, err := filepath.EvalSymlinks(filepath.Join(home, moduleCache))
	if home == "" || err != nil || !onlyOursToWrite(own) || slices.ContainsFunc(job.Places, func(p bailey.Place) bool {
		return isWithin(p.Path, own) || isWithin(own, p.Path)
	}) {
		return missing
	}
	lacks := missingModules(own, modules)
	if len(lacks) >= len(missing) {
		return missing
	}
	job.Env = slices.Clone(job.Env)
	job.Env[at] = "GOMODCACHE=" + own
	wall.Trees = append(slices.Clone(wall.Trees), bailey.Tree{Path: own})
	return lacks
}

// readGoSum returns the modules whose contents a project needs, as PATH@VERSION. What it cannot read does not count: the Go
// tool reports it.
func readGoSum(dir string) (modules []string) {
	f, err := os.OpenFile(filepath.Join(dir, "go.sum"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGoSum))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 3 && !strings.HasSuffix(words[1], "/go.mod") && filepath.IsLocal(words[0]+"@"+words[1]) {
			modules = append(modules, words[0]+"@"+words[1])
		}
	}
	return modules
}

// missingModules returns the modules that are not complete in a module cache: of some, a call may have fetched a part.
func missingModules(cache string, modules []string) (missing []string) {
	for _, m := range modules {
		path, version, _ := strings.Cut(escapeModule(m), "@")
		dir, err := os.Lstat(filepath.Join(cache, path+"@"+version))
		_, noInfo := os.Lstat(filepath.Join(cache, "cache/download", path, "@v", version+".info"))
		if err != nil || !dir.IsDir() || noInfo != nil {
			missing = append(missing, m)
		}
	}
	return missing
}

// escapeModule returns the directory of a module in a module cache: an exclamation mark and a small letter stand for a
// capital one (golang.org/ref/mod#module-cache).
func escapeModule(module string) string {
	var b strings.Builder
	for _, c := range module {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('!')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// explainModules says what may be missing after a build of Go has failed.
func explainModules(w io.Writer, missing []string) {
	if w == nil || len(missing) == 0 {
		return
	}
	more := ""
	if len(missing) > 1 {
		more = fmt.Sprintf(" and %d more", len(missing)-1)
	}
	fmt.Fprintf(w, "bailey: a build has no network, and %s%s is not downloaded; go mod download (go.download) downloads it\n", missing[0], more)
}

// onlyOursToWrite reports whether a directory belongs to this user and no other user can write to it.
func onlyOursToWrite(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
