package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"bailey"
	"bailey/internal/safefile"
)

// Commands records which commands a host has begun, and their results. Its methods may be called concurrently, but only
// one process may have a record open.
//
// The id of a command is durable before the command runs. It is remembered until after the command's deadline, when the
// host refuses the command anyway; a result is kept until the server has it.
type Commands struct {
	name string
	now  func() time.Time

	mu     sync.Mutex
	f      *os.File
	size   int64
	known  map[string]*commandRecord
	broken error
}

// commandRecord is a line of the file. A later line of an id replaces an earlier one.
type commandRecord struct {
	ID     string    `json:"id"`
	Until  time.Time `json:"until"` // the deadline
	Result *Result   `json:"result,omitempty"`
	Taken  bool      `json:"taken,omitempty"`
}

const (
	maxCommands  = 64 << 20 // bytes of the file; further commands are refused
	compactAbove = 4 << 20
	keepResults  = 7 * 24 * time.Hour // after the deadline
)

// OpenCommands opens the record in a directory, and creates it if it is missing. now may be nil.
func OpenCommands(dir string, now func() time.Time) (*Commands, error) {
	if now == nil {
		now = time.Now
	}
	c := &Commands{name: filepath.Join(dir, "commands.jsonl"), now: now, known: map[string]*commandRecord{}}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = c.readRecords()
	}
	if err == nil {
		err = c.compactFile()
	}
	if err != nil {
		return nil, commandsFault(err, c.name)
	}
	return c, nil
}

func commandsFault(err error, name string) error {
	return bailey.Unavailable.Wrapf(err, "free space or correct the permissions; commands are refused until then",
		"cannot use the record of commands %s", name)
}

// readRecords reads the file. A last line without its end was not promised to anyone. A command without a result was
// interrupted, because this process has not begun one yet.
func (c *Commands) readRecords() error {
	text, err := safefile.Read(c.name, 4*maxCommands)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var r commandRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		c.known[r.ID] = &r
	}
	for id, r := range c.known {
		if r.Result == nil && !r.Taken {
			r.Result = &Result{ID: id, Error: &Fault{Kind: string(bailey.Unavailable),
				Message: "the host ended while it carried out the command: its outcome is unknown",
				Hint:    "look at the state of the host before you send the command again", Unknown: true}}
		}
	}
	return nil
}

// compactFile writes the records that are still needed into a new file.
func (c *Commands) compactFile() error {
	var text []byte
	for id, r := range c.known {
		age := c.now().Sub(r.Until)
		if age > keepResults || age > time.Hour && r.Taken {
			delete(c.known, id)
			continue
		}
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	root, err := os.OpenRoot(filepath.Dir(c.name))
	if err != nil {
		return err
	}
	defer root.Close()
	if c.f != nil {
		c.f.Close()
	}
	c.broken = errors.New("it could not be opened again")
	if err := safefile.Replace(root, filepath.Base(c.name), text, 0o600, func() error { return nil }); err != nil {
		return err
	}
	c.f, err = os.OpenFile(c.name, os.O_WRONLY|os.O_APPEND, 0)
	c.broken, c.size = err, int64(len(text))
	return err
}

// write makes a record durable.
func (c *Commands) writeRecord(r *commandRecord) error {
	if c.broken != nil {
		return commandsFault(c.broken, c.name)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = c.f.Write(append(line, '\n'))
	if err == nil {
		err = c.f.Sync()
	}
	if err != nil {
		c.broken = err
		return commandsFault(err, c.name)
	}
	c.size += int64(len(line)) + 1
	return nil
}

// Begin records that a command begins. If it was begun before, fresh is false, and the result is the one it had, or nil
// if it still runs. If it may not begin, the result says why.
func (c *Commands) Begin(m *Command) (fresh bool, result *Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.known[m.ID]; r != nil {
		return false, r.Result
	}
	left := m.Deadline.Sub(c.now())
	var err error
	switch {
	case left <= 0:
		err = bailey.Unavailable.New("the command came after its deadline", "send it again; compare the clocks if it fails again")
	case left > MaxDeadline+time.Minute:
		err = bailey.Invalid.Errorf("send it with an earlier deadline", "the deadline is more than %v away", MaxDeadline)
	default:
		err = c.makeRoom()
	}
	if err == nil {
		r := &commandRecord{ID: m.ID, Until: m.Deadline}
		if err = c.writeRecord(r); err == nil {
			c.known[m.ID] = r
			return true, nil
		}
	}
	return false, &Result{ID: m.ID, Error: NewFault(err)}
}

func (c *Commands) makeRoom() error {
	if c.size > compactAbove {
		if err := c.compactFile(); err != nil {
			return commandsFault(err, c.name)
		}
	}
	if c.size > maxCommands {
		return bailey.Unavailable.New("too many results of commands wait for the control plane", "bring the control plane back")
	}
	return nil
}

// Finish records the result of a command that was begun.
func (c *Commands) Finish(result *Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := *c.known[result.ID]
	r.Result = result
	c.known[result.ID] = &r
	return c.writeRecord(&r)
}

// Take records that the server has a result. The id stays known.
func (c *Commands) Take(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[id]
	if known == nil || known.Result == nil || known.Taken {
		return nil
	}
	r := &commandRecord{ID: id, Until: known.Until, Taken: true,
		Result: &Result{ID: id, Error: &Fault{Kind: string(bailey.Conflict),
			Message: "the command was carried out, and its result was given"}}}
	c.known[id] = r
	return c.writeRecord(r)
}

// Results returns the results that the server has not taken.
func (c *Commands) Results() (all []*Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.known {
		if r.Result != nil && !r.Taken {
			all = append(all, r.Result)
		}
	}
	return all
}

// Close closes the file.
func (c *Commands) Close() error { return c.f.Close() }
