package broker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"bailey"
)

// event is a line of the journal. It must not contain a value.
type event struct {
	At    time.Time `json:"at"`
	Event string    `json:"event"` // start, apply, lend, end, key, sign, certify

	Program string   `json:"program,omitempty"` // start
	Digest  string   `json:"digest,omitempty"`  // apply: digest of the table
	Table   []string `json:"table,omitempty"`   // apply: contents of the table

	Leases     []entry  `json:"leases,omitempty"` // lend; certify: serial, lease, identity and end of the certificate
	Receipt    string   `json:"receipt,omitempty"`
	Capability string   `json:"capability,omitempty"`
	UID        *int     `json:"uid,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Exe        string   `json:"exe,omitempty"`
	Text       string   `json:"text,omitempty"`  // digest of the answered text
	Nonce      string   `json:"nonce,omitempty"` // nonce of that text
	By         []string `json:"by,omitempty"`    // signatures that counted: name, level and key

	Lease string    `json:"lease,omitempty"` // end
	Why   string    `json:"why,omitempty"`
	Lives time.Time `json:"lives,omitzero"` // the value could not be revoked and is valid until then

	Key    string `json:"key,omitempty"`    // key, sign: the public half, in hex
	Origin string `json:"origin,omitempty"` // sign: origin of the log
	Size   uint64 `json:"size,omitempty"`   // sign: of the checkpoint
	Root   string `json:"root,omitempty"`   // sign: of the checkpoint; empty for the statement of a log's first key
}

// entry is a lease in a line of the journal.
type entry struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	Mint  string    `json:"mint,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// maxLine limits a line of the journal in bytes; the line of a table is long.
const maxLine = 1 << 20

// journal is the broker's state on the disk. When it is opened, it reads which answers were used and which loans never
// ended.
type journal struct {
	mu     sync.Mutex
	f      *os.File
	broken error           // a write failed, so the state of the disk is unknown: nothing is lent any more
	used   map[string]bool // digests of texts, and nonces
	open   map[string]entry
	keys   map[string]logKey // by their public halves
	table  event             // the last apply
	step   func(string)
}

func newJournal(f *os.File, step func(string)) *journal {
	return &journal{f: f, used: map[string]bool{}, open: map[string]entry{}, keys: map[string]logKey{}, step: step}
}

// readJournal opens the journal, cuts off an incomplete last line, and reads the rest.
func readJournal(name string, step func(string)) (*journal, error) {
	f, err := openJournal(name)
	if err != nil {
		return nil, err
	}
	j := newJournal(f, step)
	if err := j.replayFile(name); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// replayFile reads the journal and cuts off an incomplete last line.
func (j *journal) replayFile(name string) error {
	end, err := j.replayLines(name)
	if err != nil {
		return err
	}
	info, err := j.f.Stat()
	if err == nil && info.Size() > end {
		err = errors.Join(j.f.Truncate(end), j.f.Sync())
	}
	if err != nil {
		return journalError(name, "ends in a partial line, which cannot be cut off", err)
	}
	if end > 0 {
		return nil
	}
	if err := syncDir(filepath.Dir(name)); err != nil { // the name of a new file must survive a crash too
		return journalError(name, "cannot be synced to disk", err)
	}
	return nil
}

// syncDir makes the names in a directory durable (fsync(2)).
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// replayLines reads every complete line, and returns the offset at which the last one ends.
func (j *journal) replayLines(name string) (int64, error) {
	var end int64
	r := bufio.NewReaderSize(j.f, maxLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if err == io.EOF { // the rest is not a complete line
			return end, nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, journalError(name, "cannot be read", err)
		}
		var e event
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err == nil {
			err = d.Decode(&e)
		}
		if err != nil || d.More() || !isKnownEvent(e.Event) || !j.canAppend(e) {
			return 0, journalError(name, fmt.Sprintf("has a line %d that this version did not write", n), err)
		}
		j.applyEvent(e)
		end += int64(len(line))
	}
}

func isKnownEvent(name string) bool {
	return slices.Contains([]string{"start", "apply", "lend", "end", "key", "sign", "certify"}, name)
}

func (j *journal) applyEvent(e event) {
	switch e.Event {
	case "apply":
		j.table = e
	case "lend":
		if e.Text != "" {
			j.used[e.Text], j.used[e.Nonce] = true, true
		}
		for _, l := range e.Leases {
			j.open[l.ID] = l
		}
	case "end":
		delete(j.open, e.Lease)
	case "key":
		j.keys[e.Key] = logKey{uid: *e.UID}
	case "sign":
		j.keys[e.Key] = j.keys[e.Key].afterSigning(logText{e.Origin, e.Size, e.Root})
	}
}

// appendEvent appends a line. If durable, the line is on the disk before write returns. The line takes effect in memory
// before the write: a line that failed halfway counts as written.
func (j *journal) appendEvent(e event, durable bool) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil && len(line) >= maxLine {
		return journalError(journalName, "cannot hold a line of this length", nil)
	}
	if j.broken != nil {
		return journalError(journalName, "could not be written earlier", j.broken)
	}
	if !j.canAppend(e) {
		return bailey.Internal.New("the broker's journal rejects this line", "report this with the broker's log")
	}
	j.applyEvent(e)
	step := j.step
	if e.Event != "lend" && e.Event != "sign" { // tests count only the steps of these
		step = func(string) {}
	}
	step("write")
	if _, err = j.f.Write(append(line, '\n')); err == nil && durable {
		step("sync")
		err = j.f.Sync()
	}
	if err != nil {
		j.broken = err
		return journalError(journalName, "could not be written", err)
	}
	return nil
}

// markUsed marks an answer as used before anything is minted for it. The line of the loan makes that durable. release
// must be called if the loan fails before a line was written.
func (j *journal) markUsed(text, nonce string) (release func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.used[text] || j.used[nonce] {
		return nil, bailey.Denied.New("this answer was used before",
			"repeat the call, so that a person is asked again")
	}
	j.used[text], j.used[nonce] = true, true
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.used, text)
		delete(j.used, nonce)
	}, nil
}

func (j *journal) appliedEvent() event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.table
}

// openLeases returns the loans that never ended because the process did.
func (j *journal) openLeases() (list []entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.open {
		list = append(list, e)
	}
	return list
}

func (j *journal) countOpen() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.open)
}

func journalError(name, what string, err error) error {
	if what == "" {
		what = "cannot be examined"
	}
	return bailey.Unavailable.Wrap(err, "the broker's journal "+name+" "+what,
		"check the disk and the file's owner and mode. The journal records which answers were used and what keys signed: move it away only after every open question has expired, and only if no log's key is kept here")
}

// LastApplied returns the table that was last applied, from the journal of a directory that another broker serves. It
// ignores a line that is being written.
func LastApplied(dir string) (digest string, lines []string, err error) {
	name := filepath.Join(dir, journalName)
	f, err := openJournal(name)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	j := newJournal(f, nil)
	if _, err := j.replayLines(name); err != nil {
		return "", nil, err
	}
	return j.table.Digest, j.table.Table, nil
}
