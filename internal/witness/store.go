package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// File is a [Store] in a file: JSON by log name.
//
// Several processes may be one witness if they share the file: each reads it again under a lock. With two files, one
// key could cosign two histories of one log.
type File struct {
	name string

	mu   sync.Mutex // serializes requests; guards seen
	seen map[string]audit.Checkpoint
}

// maxSeen limits the file, in bytes.
const maxSeen = 1 << 20

// OpenFile reads the file. If it is missing, the witness has seen nothing. If it cannot be read, OpenFile returns an
// error.
func OpenFile(name string) (*File, error) {
	f := &File{name: name}
	return f, f.readState()
}

// CreateFile creates a file for a witness that has seen nothing, so that a missing file means loss.
func CreateFile(name string) error {
	return (&File{name: name}).writeState(map[string]audit.Checkpoint{})
}

// Replace implements [Store].
func (f *File) Replace(ctx context.Context, origin string,
	next func(audit.Checkpoint) (audit.Checkpoint, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	release, err := f.lockState(ctx)
	if err != nil {
		return err
	}
	defer release()
	c, err := next(f.seen[origin])
	if err != nil || c == f.seen[origin] {
		return err
	}
	seen := maps.Clone(f.seen)
	seen[origin] = c
	if err := f.writeState(seen); err != nil {
		return err
	}
	f.seen = seen
	return nil
}

// lockState locks the state against other processes of this witness until release, and reads it again. If the file was
// reset, it returns an error.
func (f *File) lockState(ctx context.Context) (release func(), err error) {
	for end := time.Now().Add(patience / 2); ; time.Sleep(20 * time.Millisecond) {
		if release, err = localapi.LockFile(f.name + ".lock"); err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return nil, bailey.Unavailable.Wrap(err, "cannot lock the record of the witness",
				"check "+terminal.Shown(f.name+".lock")+", and whether another process of this witness runs; then ask again")
		}
	}
	was := f.seen
	if err = f.readState(); err == nil {
		for origin, c := range was {
			if now := f.seen[origin]; now.Size < c.Size || now.Size == c.Size && now != c {
				err = bailey.Conflict.New("the record of the witness was restored or removed: "+
					terminal.Shown(f.name), "restore it")
			}
		}
	}
	if err != nil {
		f.seen = was
		release()
		return nil, err
	}
	return release, nil
}

func (f *File) readState() error {
	f.seen = map[string]audit.Checkpoint{}
	text, err := safefile.ReadNamed(f.name, maxSeen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f.seen)
	}
	if err == nil && f.seen == nil {
		err = errors.New("it is null")
	}
	for origin, c := range f.seen {
		if err == nil && (c.Origin != origin || c.Size == 0) {
			err = fmt.Errorf("it has no checkpoint of %.80q", origin)
		}
	}
	if err != nil {
		return bailey.Conflict.Wrap(err, "cannot read the record of the witness: "+terminal.Shown(f.name),
			"restore the file from a copy; if it is lost, the witness needs a new key and name")
	}
	return nil
}

func (f *File) writeState(seen map[string]audit.Checkpoint) error {
	text, err := json.MarshalIndent(seen, "", " ")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(f.name))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, filepath.Base(f.name), append(text, '\n'), 0o600, func() error { return nil })
}
