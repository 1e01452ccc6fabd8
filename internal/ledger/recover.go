package ledger

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger/owned"
)

// Repair is the data of a "repair" entry, which records bytes that were cut off the ledger's tail.
type Repair struct {
	File   string `json:"file"` // beside the segments; its name states the entry and the offset
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

const tornTemp = "torn.new" // until it is complete and on the disk

var tornName = lazyRegexp(`^torn-[0-9]+-[0-9]+(\.[0-9]+)?$`)

// interrupted is the reason of an outcome that recovery writes.
const interrupted = "the gateway ended while this call was open; it may have run"

// createFirstSegment writes the first segment with the genesis in it. The segment gets its name when it is complete. An empty
// segment is therefore never ours; another process emptied it.
func (l *Log) createFirstSegment() ([]string, error) {
	var origin [16]byte
	rand.Read(origin[:]) // never fails (crypto/rand)
	data, err := json.Marshal(audit.Genesis{Format: audit.Format, Origin: hex.EncodeToString(origin[:]),
		Host: genesisHost(l.host)})
	if err != nil {
		return nil, err
	}
	line, _, err := audit.Append(audit.Hash{}, audit.Entry{Seq: 1, Time: l.now(), Kind: audit.KindGenesis, Data: data})
	if err != nil {
		return nil, err
	}
	first := segmentFile(1)
	if err := l.dir.Create(genesisName, first, bytes.NewReader(line)); err != nil {
		return nil, err
	}
	return []string{first}, nil
}

// recoverLedger verifies the parts that opening must verify, repairs the tail, closes the receipts that a crash left open,
// and prepares the writer.
func (l *Log) recoverLedger(names []string, c Config) error {
	name := names[len(names)-1]
	file, err := l.dir.OpenRegular(name, os.O_RDWR)
	if err != nil {
		return err
	}
	w := &l.writer
	*w = writer{dir: l.dir, number: len(names), name: name, file: file, log: l.log, bound: c.Segment, wrap: c.Wrap,
		full: math.MaxInt64}
	l.chain = chain{log: l.log, now: l.now}
	if w.wrap == nil {
		w.wrap = func(d Disk) Disk { return d }
	}
	if w.bound <= 0 {
		w.bound = segmentBytes
	}
	if w.keep = c.Reserve; w.keep <= 0 {
		w.keep = reserveBytes
	}
	w.disk = w.wrap(segment{file})
	// The lock file can be deleted and created again, so the segment is locked as well.
	if err := owned.LockFile(file); err != nil {
		return lockedError(l.dir.Path, "", err)
	}
	start, err := l.dir.checkLinks(names)
	if err != nil {
		return err
	}
	l.before = olderSegments{names[:len(names)-1], start.After()}
	newest, err := readPledge(c.Newest)
	if err != nil {
		return err
	}
	recorded, err := l.verifyLastSegment(start, &newest, names)
	if err != nil {
		return err
	}
	l.durable.Store(w.durableEnd())
	if err := l.recordRepairs(recorded, start.Size); err != nil {
		return err
	}
	if err := l.closeOpen(); err != nil {
		return err
	}
	w.full = w.bound // not earlier: a segment must record its own torn tails
	return nil
}

// verifyLastSegment reads the last segment, sets the writer after its last good entry, and returns the repairs that the segment
// records.
func (l *Log) verifyLastSegment(start audit.Start, newest *checkpointGuard,
	names []string) (recorded map[string]bool, err error) {
	w := &l.writer
	state, err := start.State()
	if err != nil {
		return nil, damagedError(l.dir.Path,
			&audit.Bad{Segment: w.number, Entry: start.Size + 1, Reason: audit.Started, Detail: err.Error()})
	}
	for i, id := range start.Open {
		l.chain.account.addIntent(id, uint64(i)+1) // each ID is open once: the line was checked
	}
	size, err := w.file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", w.file.Name(), err)
	}
	recorded, err = l.scanEntries(io.NewSectionReader(w.file, 0, size), &state, newest)
	l.chain.head, l.chain.tree = state.Head, state.Tree
	var bad *audit.Bad
	if errors.As(err, &bad) {
		if !bad.Tail || bad.Offset == 0 {
			return nil, damagedError(l.dir.Path, bad)
		}
		err = nil
	}
	if err == nil {
		err = l.verifyCheckpoint(newest, state.Head, names)
	}
	if err == nil && bad != nil {
		err = l.cutTail(bad.Offset, size)
		size = bad.Offset
	}
	w.size, w.reserved, w.end, w.open = size, size, l.chain.tip, len(l.chain.account.open)
	return recorded, err
}

func damagedError(path string, bad *audit.Bad) error {
	return bailey.Conflict.Wrap(bad, "the ledger in "+path+" is damaged",
		"keep it as evidence, and restore a copy or move it aside to start a new one; bailey audit verify shows what is valid")
}

// scanEntries processes the entries of the last segment.
func (l *Log) scanEntries(r io.Reader, state *audit.State,
	newest *checkpointGuard) (recorded map[string]bool, err error) {
	recorded = make(map[string]bool)
	err = addEntries(r, l.writer.number, state, func(e audit.Entry) error {
		newest.recordRoot(&state.Tree)
		if err := l.learnEntry(e, recorded); err != nil {
			return err
		}
		l.read(e)
		return nil
	})
	if err == nil && l.chain.last.IsZero() {
		err = &audit.Bad{Segment: l.writer.number, Entry: state.Head.Seq + 1, Reason: audit.Empty,
			Detail: "the segment has no entry: it was emptied"}
	}
	return recorded, err
}

// addEntries adds the entries of a segment to a state and calls do for each. If they are not in order, the error is an
// *audit.Bad.
func addEntries(r io.Reader, segment int, state *audit.State, do func(audit.Entry) error) error {
	begins := segment > 1
	for e, err := range audit.Scan(r, state.Head) {
		if err != nil {
			var bad *audit.Bad
			if errors.As(err, &bad) {
				bad.Segment = segment
			}
			return err
		}
		if bad := state.Add(e, begins); bad != nil {
			bad.Segment = segment
			return bad
		}
		if err := do(e); err != nil {
			return err
		}
		begins = false
	}
	return nil
}

// learnEntry records the facts of an entry that the writer needs.
func (l *Log) learnEntry(e audit.Entry, recorded map[string]bool) (err error) {
	c := &l.chain
	switch e.Kind {
	case audit.KindIntent:
		_, err = c.account.addIntent(e.Receipt, e.Seq)
	case audit.KindOutcome:
		_, err = c.account.addOutcome(e.Receipt)
	case audit.KindRepair:
		var r Repair
		if json.Unmarshal(e.Data, &r) == nil {
			recorded[r.File] = true
		}
	case audit.KindPlan:
		if p, err := audit.ParsePlan(e.Data); err == nil {
			c.plans.addPlans(p.Digest)
		}
	}
	c.last = e.Time
	return err
}

// cutTail copies the bytes from offset to size aside and cuts them off the segment. If the disk has no room for the copy,
// nothing is cut.
func (l *Log) cutTail(offset, size int64) error {
	if err := l.writer.checkFreeSpace(size - offset); err != nil {
		return err
	}
	name := fmt.Sprintf("torn-%d-%d", l.chain.head.Seq+1, offset)
	for n := 1; ; n++ {
		err := l.dir.Create(tornTemp, name, io.NewSectionReader(l.writer.file, offset, size-offset))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || n > 1000 {
			return err
		}
		name = fmt.Sprintf("torn-%d-%d.%d", l.chain.head.Seq+1, offset, n) // a crash came before the cut
	}
	err := l.writer.disk.Truncate(offset)
	if err == nil {
		err = l.writer.disk.Sync()
	}
	if err != nil {
		return bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err), "cannot cut the ledger's torn tail")
	}
	l.log.Warn("the ledger had a torn tail", "entry", l.chain.head.Seq+1, "bytes", size-offset, "kept", name)
	return nil
}

// recordRepairs records every torn tail that was kept aside and is not recorded yet. Torn tails of earlier segments, at
// entries up to before, are recorded already, because a segment continues only after that.
func (l *Log) recordRepairs(recorded map[string]bool, before uint64) error {
	names, err := l.dir.List()
	if err != nil {
		return err
	}
	var group []*request
	for _, name := range names {
		var entry uint64
		if _, err := fmt.Sscanf(name, "torn-%d-", &entry); !tornName().MatchString(name) || recorded[name] ||
			err == nil && entry <= before {
			continue
		}
		repair, err := l.describeTornFile(name)
		if err != nil {
			return err
		}
		r, err := encodeRequest(audit.KindRepair, repair, bailey.Internal)
		if err != nil {
			return err
		}
		group = append(group, r)
	}
	return l.writeRequests(group)
}

func (l *Log) describeTornFile(name string) (r Repair, err error) {
	f, err := l.dir.OpenRegular(name, os.O_RDONLY)
	if err != nil {
		return r, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return r, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return Repair{File: name, Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// closeOpen writes an outcome for each receipt without one.
func (l *Log) closeOpen() error {
	var group []*request
	for _, id := range l.chain.account.orderedIDs() {
		data, err := encodeOutcome(bailey.Outcome{Receipt: id, Status: bailey.Interrupted, Reason: interrupted,
			EndedAt: l.now().UTC()})
		if err != nil {
			return err
		}
		r, err := newRequest(audit.KindOutcome, data)
		if err != nil {
			return err
		}
		r.receipt = id
		group = append(group, r)
	}
	return l.writeRequests(group)
}

// groupEntries bounds the entries that recovery writes at once.
const groupEntries = 1024

// writeRequests makes recovery's own entries durable, in chunks.
func (l *Log) writeRequests(group []*request) error {
	for part := range slices.Chunk(group, groupEntries) {
		for _, r := range part {
			if _, err := l.enqueueRequest(r); err != nil {
				return err
			}
		}
		l.flushPending()
		for _, r := range part {
			if r.err != nil {
				return r.err
			}
		}
	}
	return nil
}

// checkLinks checks that each of the segments, given in order, begins where the one before it ends. It returns the Start of
// the last one, which is zero for a ledger's first segment. The lines between a segment's first and last are not read.
func (d *directory) checkLinks(names []string) (start audit.Start, err error) {
	var end audit.Head // of the previous segment
	for i, name := range names {
		f, err := d.OpenRegular(name, os.O_RDONLY)
		if err != nil {
			return audit.Start{}, err
		}
		if i > 0 {
			start, err = readStartAfter(f, end)
		}
		if err == nil && i+1 < len(names) {
			end, err = lastOf(f)
		}
		f.Close()
		if err != nil {
			return audit.Start{}, damagedError(d.Path,
				&audit.Bad{Segment: i + 1, Entry: max(end.Seq+1, 1), Reason: audit.Started, Detail: err.Error()})
		}
	}
	return start, nil
}

// readStartAfter reads a segment's first line, which must follow after end.
func readStartAfter(f *os.File, end audit.Head) (audit.Start, error) {
	start, err := firstOf(f)
	if err == nil && start.After() != end {
		err = fmt.Errorf("it begins after entry %d, %s, but the segment before it ends with entry %d, %s", start.Size,
			start.Head, end.Seq, end.Hash)
	}
	return start, err
}

// firstOf returns the Start in a segment's first line.
func firstOf(f io.ReaderAt) (audit.Start, error) {
	line, err := bufio.NewReaderSize(io.NewSectionReader(f, 0, audit.MaxLine+1), 4<<10).ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return audit.Start{}, errors.New("the segment has no entry")
	}
	if err != nil && err != io.EOF {
		return audit.Start{}, err
	}
	return audit.ReadStart(line)
}

// lastOf returns the number and hash that a segment's last line states.
func lastOf(f *os.File) (audit.Head, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return audit.Head{}, err
	}
	for _, much := range []int64{4 << 10, audit.MaxLine + 1} {
		tail := make([]byte, min(much, size))
		if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
			return audit.Head{}, err
		}
		body, whole := bytes.CutSuffix(tail, []byte("\n"))
		if !whole {
			break
		}
		begin := bytes.LastIndexByte(body, '\n') + 1
		if begin == 0 && int64(len(tail)) < size {
			continue
		}
		var line struct {
			Hash  audit.Hash
			Entry struct{ Seq uint64 }
		}
		if err := json.Unmarshal(body[begin:], &line); err != nil {
			break
		}
		if !bytes.HasPrefix(body[begin:],
			fmt.Appendf(nil, `{"hash":"%s","entry":{"seq":%d,`, line.Hash, line.Entry.Seq)) {
			break
		}
		return audit.Head{Seq: line.Entry.Seq, Hash: line.Hash}, nil
	}
	return audit.Head{}, errors.New("it does not end with an entry, but another segment follows")
}
