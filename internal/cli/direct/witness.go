package direct

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// witness cosigns checkpoints of the logs whose keys it knows. The last checkpoint of each log is stored durably in a
// file before the signature is returned. So it never cosigns a smaller checkpoint than before, or two inconsistent
// checkpoints.
//
// Several processes may be one witness if they share the file: each reads it again under a lock. With two files, one
// key could cosign two histories of one log.
type witness struct {
	by    note.Signer
	trust audit.Trust
	file  string // last checkpoints, as JSON by log name

	mu   sync.Mutex // serializes requests; guards seen
	seen map[string]audit.Checkpoint
}

// maxSeen limits the state file, in bytes.
const maxSeen = 1 << 20

// openWitness reads the state file. If the file is missing, the witness has seen nothing. If it cannot be read,
// openWitness returns an error.
func openWitness(file string, t audit.Trust, by note.Signer) (*witness, error) {
	w := &witness{by: by, trust: t, file: file}
	return w, w.read()
}

// hold locks the state against other processes of this witness until release, and reads it again. If the file was
// reset, it returns an error.
func (w *witness) hold(ctx context.Context) (release func(), err error) {
	for end := time.Now().Add(witnessPatience / 2); ; time.Sleep(20 * time.Millisecond) {
		if release, err = localapi.LockFile(w.file + ".lock"); err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "what the witness saw cannot be held", Err: err,
				Hint: "look at " + terminal.Shown(w.file+".lock") + ", and who else is this witness; then ask again"}
		}
	}
	was := w.seen
	if err = w.read(); err == nil {
		for origin, c := range was {
			if now := w.seen[origin]; now.Size < c.Size || now.Size == c.Size && now != c {
				err = &bailey.Error{Kind: bailey.Conflict, Message: "the file of what the witness saw was put back or taken away: " + terminal.Shown(w.file), Hint: "restore it"}
			}
		}
	}
	if err != nil {
		w.seen = was
		release()
		return nil, err
	}
	return release, nil
}

func (w *witness) read() error {
	w.seen = map[string]audit.Checkpoint{}
	text, err := safefile.ReadNamed(w.file, maxSeen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &w.seen)
	}
	if err == nil && w.seen == nil {
		err = errors.New("it is null")
	}
	for origin, c := range w.seen {
		if err == nil && (c.Origin != origin || c.Size == 0) {
			err = fmt.Errorf("of %.80q it holds no checkpoint", origin)
		}
	}
	if err != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: "what the witness saw last cannot be read: " + terminal.Shown(w.file), Err: err,
			Hint: "restore the file from a copy; a witness that forgot is to be given another key and name"}
	}
	return nil
}

// stale is the error for a request that does not start at the last size that the witness saw.
type stale struct{ size uint64 }

func (s stale) Error() string {
	return fmt.Sprintf("the witness saw %d entries last: the request has to begin there", s.size)
}

// errUnknown is the error for a checkpoint of a log whose key the witness does not have.
var errUnknown = &bailey.Error{Kind: bailey.NotFound, Message: "the witness was given no key of this log", Hint: "start it with --key KEY, as bailey audit key prints it"}

// add verifies and cosigns a request. It returns the signature lines of the witness.
func (w *witness) add(ctx context.Context, text []byte) ([]byte, error) {
	r, err := audit.ParseRequest(text)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: err.Error(), Hint: "bailey audit checkpoint --since N prints one"}
	}
	said, err := audit.ReadCheckpoint(r.Checkpoint)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: err.Error(), Hint: "bailey audit checkpoint --since N prints one"}
	}
	if !w.knows(said.Origin) {
		return nil, errUnknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	release, err := w.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	last := w.seen[said.Origin]
	if r.Old > said.Size {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the request begins behind its own checkpoint", Hint: "give --since what the witness saw last"}
	}
	// before the size, which strangers must not learn
	if _, err := w.trust.Open(r.Checkpoint); err != nil {
		return nil, err
	}
	if r.Old != last.Size {
		return nil, stale{last.Size}
	}
	cosigned, err := audit.Cosign(r.Checkpoint, w.trust, last, r.Proof, w.by)
	if err != nil {
		return nil, err
	}
	if err := w.keep(said); err != nil {
		return nil, err
	}
	return ownLines(cosigned, w.by.Name()), nil
}

func (w *witness) knows(origin string) bool {
	for _, k := range w.trust.Keys {
		if k.Name() == origin {
			return true
		}
	}
	return false
}

// keep stores the last checkpoint of a log durably.
func (w *witness) keep(c audit.Checkpoint) error {
	if w.seen[c.Origin] == c {
		return nil
	}
	next := map[string]audit.Checkpoint{c.Origin: c}
	for origin, was := range w.seen {
		if origin != c.Origin {
			next[origin] = was
		}
	}
	if err := w.write(next); err != nil {
		return err
	}
	w.seen = next
	return nil
}

func (w *witness) write(seen map[string]audit.Checkpoint) error {
	text, err := json.MarshalIndent(seen, "", " ")
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(w.file))
	if err != nil {
		return err
	}
	defer root.Close()
	return safefile.Replace(root, filepath.Base(w.file), append(text, '\n'), 0o600, func() error { return nil })
}

// ownLines returns the signature lines of a note that carry the given name.
func ownLines(signed []byte, name string) []byte {
	var lines []byte
	for line := range bytes.SplitAfterSeq(signed, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("— "+name+" ")) {
			lines = append(lines, line...)
		}
	}
	return lines
}
