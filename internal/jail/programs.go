//go:build linux

package jail

import (
	"os"

	"bailey"
)

// A pinned file is executed in place. The hashed file stays open, and is compared when the run starts.
type pinned struct {
	file *os.File
	id   ident
}

// addHelpers adds the other programs that the tool may execute.
func (r *run) addHelpers(l *layout, job bailey.Job) error {
	for _, name := range job.Exec {
		for name != "" {
			h, err := r.jail.tools.findTool(name)
			if err != nil {
				return err
			}
			if err := r.pinTool(job, h); err != nil {
				return err
			}
			l.addTool(h, true)
			name = h.env
		}
	}
	return nil
}

// pinTool holds the files of a tool until the run is closed, and lists them in the cage. None of them may be in a place
// where the call itself could replace it.
func (r *run) pinTool(job bailey.Job, t *tool) error {
	for _, f := range t.pinnedFiles() {
		for _, p := range job.Places {
			if p.Write && containsPath(p.Path, f.path) {
				return bailey.Denied.New(f.path+" lies in "+p.Path+", which the call may write",
					"install the program outside the workspace")
			}
		}
		if r.hasProgram(f.path) {
			continue
		}
		if err := r.holdFile(f); err != nil {
			return err
		}
		r.cage.Programs = append(r.cage.Programs, bailey.Program{Path: f.path, SHA256: f.digest, Copied: f.copied})
	}
	return nil
}

func (r *run) hasProgram(path string) bool {
	for _, p := range r.cage.Programs {
		if p.Path == path {
			return true
		}
	}
	return false
}

// holdFile takes the copy of a file, or opens the file in place. The content must be the one that was hashed.
func (r *run) holdFile(f toolFile) error {
	if f.copied {
		c, err := r.jail.tools.copies.acquireCopy(f.path, f.id)
		if err != nil {
			return err
		}
		r.copied[f.path] = c
		if c.digest != f.digest {
			return changedError(f.path, nil)
		}
		return nil
	}
	file, err := openProgram(f.path)
	if err != nil {
		return changedError(f.path, err)
	}
	r.pinned = append(r.pinned, pinned{file, f.id})
	if now, err := fileIdent(file); err != nil || now != f.id {
		return changedError(f.path, err)
	}
	return nil
}

// copyOf returns a descriptor of the run's copy of a file, for PID 1.
func (r *run) copyOf(path string) (*os.File, error) {
	c := r.copied[path]
	if c == nil {
		return nil, bailey.Internal.New("no copy of "+path+" was made", "")
	}
	return duplicateFile(c.file)
}
