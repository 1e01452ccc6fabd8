//go:build linux

package jail

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"bailey"
)

// maxLoaded limits the shared objects of a directory together with their dependencies: each is a mount of the cage.
const maxLoaded = 256

// addToolLibs adds the shared objects that the tool loads while it runs, for example Python's extension modules, with their
// dependencies. Declared data is noexec, so no loader could map code from it (mmap(2), EPERM). Landlock prevents the
// execution of these objects.
func (r *run) addToolLibs(l *layout, job bailey.Job, t *tool) error {
	for _, dir := range job.Libs {
		loaded, err := r.jail.tools.librariesIn(dir, t)
		if err != nil {
			return err
		}
		if err := r.pinTool(job, loaded); err != nil {
			return err
		}
		l.addTool(loaded, false)
	}
	return nil
}

// librariesIn returns the shared objects in dir that fit the program, from the cache while nothing has changed. If the
// directory does not exist, it returns none.
func (t *tools) librariesIn(dir string, by *tool) (*tool, error) {
	key := dir + "\x00" + by.elf.interp
	t.mu.Lock()
	known := t.known[key]
	t.mu.Unlock()
	if known != nil && known.isUnchanged() {
		return known, nil
	}
	fresh, err := t.gatherLibs(dir, by.elf)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[key] = fresh // by is known, so the map exists
	return fresh, nil
}

func (t *tools) gatherLibs(dir string, by object) (*tool, error) {
	made := &tool{}
	real, links, err := resolveLinks(filepath.Clean(dir))
	if os.IsNotExist(err) {
		return made, nil
	}
	var id ident
	var entries []os.DirEntry
	if err == nil {
		id, err = statIdent(real)
	}
	if err == nil {
		entries, err = os.ReadDir(real)
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the libraries in "+dir+" cannot be shown to the tool",
			"name the very directory that holds them in the manifest")
	}
	made.dirs, made.links = []toolFile{{path: real, id: id}}, links
	all := t.newWalk(by.interp)
	for _, e := range entries {
		path := filepath.Join(real, e.Name())
		if !strings.HasSuffix(path, ".so") && !strings.Contains(path, ".so.") || !isLoadable(path, by) {
			continue
		}
		if err := t.gatherOne(all, path, by); err != nil {
			return nil, err
		}
		if len(all.files) > maxLoaded {
			return nil, bailey.Unavailable.Errorf("name a directory with fewer of them in the manifest",
				"the libraries in %s are more than the %d that a cage takes", dir, maxLoaded)
		}
	}
	made.files, made.links = all.files, append(made.links, all.links...)
	return made, nil
}

// gatherOne adds a shared object with its dependencies. If one of those is not installed, the object is left out, since
// it could not be loaded outside either.
func (t *tools) gatherOne(all *walk, path string, by object) error {
	w := t.newWalk(by.interp)
	o, err := w.visitFile(path, library)
	if err == nil {
		err = w.addLibraries(path, o.real, o, by.rpath)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return unfitProgram(path, err)
	}
	for _, f := range w.files {
		if !all.seen[f.path] {
			all.addFile(f, nil)
		}
	}
	for _, k := range w.links {
		if !all.seen[k.path] {
			all.seen[k.path], all.links = true, append(all.links, k)
		}
	}
	return nil
}
