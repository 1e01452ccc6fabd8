package ledger

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"bailey"
	"bailey/audit"
)

// ahead is how much more than needed is reserved at once, in bytes, while the disk has it: a call then
// seldom waits for fallocate.
const ahead = 1 << 20

// slot is what an open intent keeps reserved: its outcome, and the plan that may have to stand before it.
const slot = 2 * audit.MaxLine

// writer appends to the last segment. One goroutine uses it.
//
// Invariant between groups: the segment's length is size, all of it durable; and bytes up to reserved,
// at least one slot for each open receipt behind size, are allocated. Only a write that failed and a reservation
// that then could not be renewed break the second half, and then no intent is taken until it is renewed.
type writer struct {
	dir      *directory
	wrap     func(Disk) Disk
	log      *slog.Logger
	now      func() time.Time
	bound    int64 // the size at which a segment is full
	number   int   // of the segment
	name     string
	file     *os.File
	disk     Disk
	full     int64 // the size at which the next segment is to begin
	head     audit.Head
	tree     audit.Tree // over the entries up to head
	size     int64
	reserved int64
	account  account   // durable, and while a group is being made with what is in it
	last     time.Time // of the last entry
	plans    known     // durable, in this segment
	dead     error     // why nothing can be written any more
}

// group is what a number of requests become on the disk.
type group struct {
	lines []byte
	head  audit.Head // after them
	tree  audit.Tree // after them
	last  time.Time  // after them
	plans known      // that come with them
	moves []move     // of the account, by them
}

// commit makes the requests durable in one write and one sync. What became of each is in its err.
func (w *writer) commit(requests []*request) {
	if w.dead == nil {
		if err := w.dir.same(w.file, w.name, w.size); err != nil {
			w.die(err)
		}
	}
	w.rotate()
	if w.dead != nil {
		refuse(requests, w.dead)
		return
	}
	g := w.encode(requests)
	if err := w.reserve(g); err != nil {
		var outcomes []*request // their space was reserved with their intents
		for _, r := range requests {
			switch {
			case r.err != nil:
			case r.kind == audit.KindOutcome:
				outcomes = append(outcomes, r)
			default:
				r.err = err
			}
		}
		w.account.undo(g.moves)
		requests, g = outcomes, w.encode(outcomes)
	}
	if len(g.lines) == 0 {
		return
	}
	if err := w.put(g); err != nil {
		refuse(requests, err)
		return
	}
	w.done(g)
}

// done takes over a group that is durable.
func (w *writer) done(g group) {
	w.size += int64(len(g.lines))
	w.head, w.tree, w.last = g.head, g.tree, g.last
	w.plans.add(slices.Collect(maps.Keys(g.plans))...)
}

func refuse(requests []*request, err error) {
	for _, r := range requests {
		if r.err == nil {
			r.err = err
		}
	}
}

// encode chains the requests, each behind its plan. One that no ledger can hold is refused alone.
func (w *writer) encode(requests []*request) group {
	g := group{head: w.head, tree: w.tree, last: w.last}
	for _, r := range requests {
		if r.err = w.plan(&g, r.plan); r.err == nil {
			r.err = w.request(&g, r)
		}
	}
	return g
}

// request puts one request into the group and into the account.
func (w *writer) request(g *group, r *request) error {
	m, err := w.move(r, g.head.Seq+1)
	if err != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: "the " + r.kind + " cannot be recorded",
			Hint: "every call needs a receipt id of its own", Err: err}
	}
	if err := w.entry(g, r.kind, r.data); err != nil {
		w.account.undo(m)
		return err
	}
	g.moves = append(g.moves, m...)
	return nil
}

// move changes the account as a request does.
func (w *writer) move(r *request, seq uint64) ([]move, error) {
	var m move
	var err error
	switch r.kind {
	case audit.KindIntent:
		m, err = w.account.intent(r.receipt, seq)
	case audit.KindOutcome:
		m, err = w.account.outcome(r.receipt)
	default:
		return nil, nil
	}
	return []move{m}, err
}

// entry puts one entry into the group.
func (w *writer) entry(g *group, kind string, data []byte) error {
	e := audit.Entry{Seq: g.head.Seq + 1, Time: w.now(), Kind: kind, Data: data}
	line, hash, err := audit.Append(g.head.Hash, e)
	if err != nil {
		return &bailey.Error{Kind: bailey.Invalid, Message: "the " + kind + " cannot be recorded",
			Hint: "an entry is one JSON object of at most 64 KiB: shorten the call", Err: err}
	}
	if e.Time.Round(0).Before(g.last) {
		w.log.Warn("the clock went back", "entry", e.Seq, "now", e.Time, "before", g.last)
	}
	g.lines = append(g.lines, line...)
	g.head, g.last = audit.Head{Seq: e.Seq, Hash: hash}, e.Time.Round(0)
	g.tree.Add(audit.Leaf(line))
	return nil
}

// reserve makes sure that the group fits and that behind it every open intent has its slot.
func (w *writer) reserve(g group) error {
	need := w.size + int64(len(g.lines)) + int64(len(w.account.open))*slot
	from := max(w.reserved, w.size)
	if need <= from {
		return nil
	}
	err := w.disk.Reserve(from, need-from+ahead)
	if err == nil {
		w.reserved = need + ahead
		return nil
	}
	if err = w.disk.Reserve(from, need-from); err == nil {
		w.reserved = need
		return nil
	}
	return unavailable(cure(err), err, "the ledger has no space for this call and its outcome")
}

// put puts a group behind what is durable and syncs. After an error nothing of it is left, or w is dead.
func (w *writer) put(g group) error {
	n, err := w.disk.WriteAt(g.lines, w.size)
	if err == nil && n < len(g.lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.account.undo(g.moves)
		w.rollback()
		return unavailable(cure(err), err, "the ledger could not be written")
	}
	if err := w.disk.Sync(); err != nil {
		cut := w.disk.Truncate(w.size) // so that what is refused now is not found at the next start
		w.die(errors.Join(err, cut))
		return w.dead
	}
	return nil
}

// rollback takes away what a failed write left, and reserves again what the truncation gave back.
func (w *writer) rollback() {
	if err := w.disk.Truncate(w.size); err != nil {
		w.die(err)
		return
	}
	if err := w.disk.Sync(); err != nil {
		w.die(err)
		return
	}
	w.reserved = w.size
	if err := w.reserve(group{}); err != nil {
		w.log.Error("outcomes of open calls may find no space", "open", len(w.account.open), "err", err)
	}
}

// die ends all writing: what the disk holds is not known.
func (w *writer) die(err error) {
	const hint = "look at the disk and the kernel's log, then end the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
	w.dead = unavailable(hint, err, "the ledger stopped: what its disk holds is not known")
	w.log.Error("the ledger stopped", "entry", w.head.Seq, "bytes", w.size, "err", err)
}

// release gives back reserved space that nobody needs and closes the segment.
func (w *writer) release() error {
	if w.file == nil {
		return nil
	}
	if w.dead == nil && len(w.account.open) == 0 && w.reserved > w.size && w.dir.same(w.file, w.name, w.size) == nil {
		if err := w.disk.Truncate(w.size); err != nil {
			w.log.Warn("reserved space stays with the ledger", "bytes", w.reserved-w.size, "err", err)
		}
	}
	return w.file.Close()
}
