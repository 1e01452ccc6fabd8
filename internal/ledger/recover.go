package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"bailey"
	"bailey/audit"
)

// Repair is the data of a "repair" entry: bytes that were cut off the ledger's tail.
type Repair struct {
	File   string `json:"file"` // beside the segments; its name says which entry and which byte
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const tornTemp = "torn.new" // until it is whole and on the disk

var tornName = lazy(`^torn-[0-9]+-[0-9]+(\.[0-9]+)?$`)

// interrupted is the reason of an outcome that recovery writes.
const interrupted = "the gateway ended while this call was open; it may have run"

// begin writes the first segment with genesis in it. The segment gets its name when it is whole, so an
// empty one is never ours: somebody emptied it.
func (l *Log) begin() ([]string, error) {
	var origin [16]byte
	rand.Read(origin[:]) // never fails (crypto/rand)
	data, err := json.Marshal(audit.Genesis{Format: audit.Format, Origin: hex.EncodeToString(origin[:]), Host: hostname(l.host)})
	if err != nil {
		return nil, err
	}
	line, _, err := audit.Append(audit.Hash{}, audit.Entry{Seq: 1, Time: l.now(), Kind: audit.KindGenesis, Data: data})
	if err != nil {
		return nil, err
	}
	const first = "00000001.jsonl"
	if err := l.dir.create(genesisName, first, bytes.NewReader(line)); err != nil {
		return nil, err
	}
	return []string{first}, nil
}

// recover verifies the ledger, repairs its tail, closes what a crash left open and makes the writer ready.
func (l *Log) recover(names []string, wrap func(Disk) Disk) error {
	name := names[len(names)-1]
	file, err := l.dir.open(name, os.O_RDWR)
	if err != nil {
		return err
	}
	l.writer = writer{dir: l.dir, name: name, file: file, disk: segment{file}, log: l.log, now: l.now}
	if wrap != nil {
		l.writer.disk = wrap(l.writer.disk)
	}
	// A lock file can be deleted and made anew; the segment is held as well.
	if err := lockWhole(file); err != nil {
		return taken(l.dir.path, "", err)
	}
	recorded, err := l.verify(names)
	if err != nil {
		return err
	}
	l.durable.Store(l.writer.size)
	if err := l.recordRepairs(recorded); err != nil {
		return err
	}
	return l.closeOpen()
}

// verify reads the whole chain, sets the writer behind its last good entry, and returns the repairs
// that are on record.
func (l *Log) verify(names []string) (recorded map[string]bool, err error) {
	recorded = make(map[string]bool)
	var state audit.State
	for i, name := range names {
		last := i == len(names)-1
		file := l.writer.file
		if !last {
			if file, err = l.dir.open(name, os.O_RDONLY); err != nil {
				return nil, err
			}
			defer file.Close()
		}
		size, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file.Name(), err)
		}
		err = l.scan(io.NewSectionReader(file, 0, size), i > 0, recorded, &state)
		var bad *audit.Bad
		if errors.As(err, &bad) {
			bad.Segment = i + 1
			if !last || bad.Reason != audit.Torn || bad.Offset == 0 {
				return nil, damaged(l.dir.path, bad)
			}
			l.writer.head = state.Head
			err = l.cut(bad.Offset, size)
			size = bad.Offset
		}
		if err != nil {
			return nil, err
		}
		if last {
			l.pairs = state.Pairs
			l.writer.head, l.writer.tree = state.Head, state.Tree
			l.writer.size, l.writer.reserved, l.writer.open = size, size, l.pairs.Len()
		}
	}
	if l.writer.head.Seq == 0 {
		return nil, damaged(l.dir.path, &audit.Bad{Segment: 1, Entry: 1, Reason: audit.Empty, Detail: "somebody emptied it"})
	}
	return recorded, nil
}

func damaged(path string, bad *audit.Bad) error {
	return &bailey.Error{Kind: bailey.Conflict, Message: "the ledger in " + path + " is damaged", Err: bad,
		Hint: "keep it for whoever looks into this, restore a copy, or move it aside to begin a new one; bailey audit verify shows what holds"}
}

// scan takes a segment's entries into account; later tells whether it is not the ledger's first.
func (l *Log) scan(r io.Reader, later bool, recorded map[string]bool, state *audit.State) error {
	begins := later
	for e, err := range audit.Scan(r, state.Head) {
		if err != nil {
			return err
		}
		if bad := state.Add(e, begins); bad != nil {
			return bad
		}
		begins = false
		switch e.Kind {
		case audit.KindRepair:
			var r Repair
			if json.Unmarshal(e.Data, &r) == nil {
				recorded[r.File] = true
			}
		case audit.KindPlan:
			if p, err := audit.ParsePlan(e.Data); err == nil {
				l.writer.plans.add(p.Digest)
			}
		}
		l.writer.last = e.Time
	}
	if begins {
		return &audit.Bad{Entry: state.Head.Seq + 1, Reason: audit.Started, Detail: "the segment holds no entry"}
	}
	return nil
}

// cut keeps the bytes from offset to size aside and takes them off the segment.
func (l *Log) cut(offset, size int64) error {
	name := fmt.Sprintf("torn-%d-%d", l.writer.head.Seq+1, offset)
	for n := 1; ; n++ {
		err := l.dir.create(tornTemp, name, io.NewSectionReader(l.writer.file, offset, size-offset))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || n > 1000 {
			return err
		}
		name = fmt.Sprintf("torn-%d-%d.%d", l.writer.head.Seq+1, offset, n) // a crash came before the cut
	}
	if err := l.writer.disk.Truncate(offset); err != nil {
		return unavailable(cure(err), err, "the ledger's torn tail could not be cut")
	}
	if err := l.writer.disk.Sync(); err != nil {
		return unavailable(cure(err), err, "the ledger's torn tail could not be cut")
	}
	l.log.Warn("the ledger had a torn tail", "entry", l.writer.head.Seq+1, "bytes", size-offset, "kept", name)
	return nil
}

// recordRepairs notes every torn tail that was kept aside and is not on record yet.
func (l *Log) recordRepairs(recorded map[string]bool) error {
	names, err := l.dir.list()
	if err != nil {
		return err
	}
	var group []*request
	for _, name := range names {
		if !tornName().MatchString(name) || recorded[name] {
			continue
		}
		data, err := l.describe(name)
		if err != nil {
			return err
		}
		group = append(group, &request{kind: audit.KindRepair, data: data})
	}
	return l.write(group)
}

func (l *Log) describe(name string) ([]byte, error) {
	f, err := l.dir.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return json.Marshal(Repair{File: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))})
}

// closeOpen writes an outcome for each receipt that has none.
func (l *Log) closeOpen() error {
	ids := l.pairs.Open()
	var group []*request
	for _, id := range ids {
		data, err := fit(bailey.Outcome{Receipt: id, Status: bailey.Interrupted, Reason: interrupted, EndedAt: l.now().UTC()})
		if err != nil {
			return err
		}
		group = append(group, &request{kind: audit.KindOutcome, data: data})
		if err := l.pairs.Outcome(id); err != nil {
			return err
		}
	}
	return l.write(group)
}

// write makes a group of recovery's own entries durable, in parts of bounded size.
func (l *Log) write(group []*request) error {
	for len(group) > 0 {
		part := group[:min(len(group), groupEntries)]
		for _, r := range part {
			r.done = make(chan struct{})
		}
		l.commit(part)
		for _, r := range part {
			if r.err != nil {
				return r.err
			}
		}
		group = group[len(part):]
	}
	return nil
}
