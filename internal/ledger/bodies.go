package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger/owned"
	"bailey/internal/receipts"
)

// retention is how long a body is kept, unless the configuration says otherwise.
const retention = 30 * 24 * time.Hour

// forgottenPart is the suffix of an empty file. The file records that a receipt's bodies were forgotten.
const forgottenPart = "forgotten"

// bodyName matches RECEIPT.PART. Receipt IDs are random, so the name does not depend on the content.
var bodyName = lazyRegexp(`^[A-Za-z0-9._-]{1,64}\.(input|stdout|stderr|forgotten)$`)

// bodies is the directory blobs/ beside the segments. A file in it is 32 bytes of salt followed by the body. The
// ledger's commitment was made from them, and the salt is gone with the file.
type bodies struct {
	dir   *owned.Dir
	log   *slog.Logger
	now   func() time.Time
	keep  time.Duration
	spare int64 // bytes that must stay free on the disk
	daily int64 // limit for the bodies of one day, in bytes
	most  int64 // limit for all bodies, in bytes
	stored
	full  chan struct{} // a limit is exceeded
	fresh chan string   // names of files that are written but not synced
	stop  chan struct{}
	gone  sync.WaitGroup
}

// openBodies opens the directory, creates it if it is missing, and starts its maintenance.
func openBodies(c Config, log *slog.Logger, now func() time.Time) (*bodies, error) {
	path := filepath.Join(c.Dir, "blobs")
	if err := owned.MakeDir(path); err != nil {
		return nil, bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err),
			"there is no directory for bodies beside the ledger")
	}
	dir, err := openOwned(path)
	if err != nil {
		return nil, err
	}
	b := &bodies{dir: dir, log: log, now: now, keep: c.Retention, spare: c.Reserve, daily: c.DailyBodies,
		most: c.AllBodies, full: make(chan struct{}, 1), fresh: make(chan string, 1024), stop: make(chan struct{})}
	if b.keep <= 0 {
		b.keep = retention
	}
	if b.daily <= 0 {
		b.daily = bodiesOfADay
	}
	if b.most <= 0 {
		b.most = bodiesInAll
	}
	if b.spare <= 0 {
		b.spare = reserveBytes
	}
	b.gone.Go(b.syncBodies)
	b.gone.Go(b.runCleanup)
	return b, nil
}

// close waits until all written bodies are on the disk.
func (b *bodies) close() error {
	close(b.stop)
	close(b.fresh)
	b.gone.Wait()
	return b.dir.Close()
}

// commitBody returns the ledger's description of a body, still with the bytes in it, and their salt.
func commitBody(body *bailey.Body) (*bailey.Body, audit.Salt) {
	var salt audit.Salt
	rand.Read(salt[:]) // never fails (crypto/rand)
	c := audit.Commit(salt, body.Bytes)
	return &bailey.Body{Length: int(c.Length), Commitment: c.Digest.String(), Bytes: body.Bytes}, salt
}

// writeBody writes a body. When it returns, the file is complete; it is on the disk a little later. If a crash loses the
// body, a reader finds that it is missing, and the ledger still verifies.
func (b *bodies) writeBody(id bailey.ReceiptID, part string, salt audit.Salt, body []byte) error {
	if len(body) > 2*bailey.OutputCap {
		return fmt.Errorf("it has %d bytes, more than the limit", len(body))
	}
	if n, err := freeBytes(b.dir.Path); err != nil || n < uint64(b.spare) {
		return errors.Join(err, fmt.Errorf("%d bytes are free, but %d are reserved", n, b.spare))
	}
	f, err := b.dir.OpenRegular(string(id)+"."+part, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(append(salt[:], body...))
	if err == nil && b.isForgotten(id) { // checked last: Forget marks first and then removes
		err = errors.New("it was deleted")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, b.removePart(id, part))
	}
	if b.countBody(time.Now(), int64(len(salt)+len(body))) {
		select {
		case b.full <- struct{}{}:
		default: // already known
		}
	}
	b.fresh <- string(id) + "." + part
	return nil
}

// isForgotten reports whether the receipt's bodies were forgotten, even if its call is still open.
func (b *bodies) isForgotten(id bailey.ReceiptID) bool {
	_, err := os.Lstat(filepath.Join(b.dir.Path, string(id)+"."+forgottenPart))
	return err == nil
}

// syncBodies makes written bodies durable, after the calls have gone on. Many files may wait for this, so none of them stays
// open. A file that is opened again syncs everything written before, and reports errors that were not reported
// yet (fsync(2)).
func (b *bodies) syncBodies() {
	for name := range b.fresh {
		// it may have been forgotten meanwhile
		if err := b.syncFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			b.log.Error("a body may be lost", "file", name, "err", err)
		}
		if len(b.fresh) == 0 {
			if err := owned.SyncDir(b.dir.Path); err != nil {
				b.log.Error("bodies may be lost", "err", err)
			}
		}
	}
}

func (b *bodies) syncFile(name string) error {
	f, err := b.dir.OpenRegular(name, os.O_RDWR)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// runCleanup removes bodies that are too old, now and daily. If there are too many bodies, it removes the oldest at once.
func (b *bodies) runCleanup() {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		if err := errors.Join(b.removeExpired(), b.enforceLimits()); err != nil {
			b.log.Error("cannot remove expired bodies", "err", err)
		}
		for again := true; again; {
			select {
			case <-b.full:
				if err := b.enforceLimits(); err != nil {
					b.log.Error("cannot remove bodies that exceed the limit", "err", err)
				}
			case <-day.C:
				again = false
			case <-b.stop:
				return
			}
		}
	}
}

// removeExpired removes expired bodies, whether or not a receipt names them, and forgotten bodies that a crash left. Files with
// other names are left alone.
func (b *bodies) removeExpired() error {
	names, err := b.dir.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !bodyName().MatchString(name) {
			continue
		}
		st, err := os.Lstat(filepath.Join(b.dir.Path, name))
		if err != nil {
			continue // another sweep was quicker
		}
		id, part := splitBodyName(name)
		if b.now().Sub(st.ModTime()) > b.keep {
			err = b.removePart(id, part)
		} else if part == forgottenPart {
			_, err = b.removeAllParts(id)
		}
		if err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func splitBodyName(name string) (bailey.ReceiptID, string) {
	i := strings.LastIndexByte(name, '.')
	return bailey.ReceiptID(name[:i]), name[i+1:]
}

func (b *bodies) removePart(id bailey.ReceiptID, part string) error {
	err := b.dir.Remove(string(id) + "." + part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// existingParts returns the parts of a receipt that exist.
func (b *bodies) existingParts(id bailey.ReceiptID) (parts []string) {
	for _, part := range []string{receipts.InputPart, receipts.StdoutPart, receipts.StderrPart} {
		if _, err := os.Lstat(filepath.Join(b.dir.Path, string(id)+"."+part)); err == nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// removeAllParts removes all parts of a receipt and returns the parts that existed.
func (b *bodies) removeAllParts(id bailey.ReceiptID) (parts []string, err error) {
	parts = b.existingParts(id)
	for _, part := range parts {
		err = errors.Join(err, b.removePart(id, part))
	}
	if len(parts) > 0 {
		err = errors.Join(err, owned.SyncDir(b.dir.Path))
	}
	return parts, err
}

// markForgotten writes the empty file that says that a receipt's bodies were forgotten.
func (b *bodies) markForgotten(id bailey.ReceiptID) error {
	f, err := b.dir.OpenRegular(string(id)+"."+forgottenPart, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), owned.SyncDir(b.dir.Path))
}

// readBody returns a body that matches its commitment, or an error with the reason.
func (b *bodies) readBody(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	none := func(err error, why string) ([]byte, error) {
		return nil, bailey.NotFound.Wrap(err, "the "+part+" of "+string(id)+" is missing: "+why, "")
	}
	if said.State != "" {
		return none(nil, said.State)
	}
	f, err := b.dir.OpenRegular(string(id)+"."+part, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if b.isForgotten(id) {
			return none(nil, "it was deleted")
		}
		return none(nil, fmt.Sprintf("bodies are kept for %d days, or less if there are too many; or it was deleted, or lost", int(b.keep.Hours()/24)))
	}
	if err != nil {
		return none(err, "its file was refused")
	}
	defer f.Close()
	var salt audit.Salt
	if _, err := io.ReadFull(f, salt[:]); err != nil {
		return none(err, "its file is truncated")
	}
	body, err := io.ReadAll(io.LimitReader(f, 2*bailey.OutputCap+1))
	if err != nil {
		return none(err, "its file cannot be read")
	}
	c := audit.Commitment{Length: uint64(said.Length)}
	if err := c.Digest.UnmarshalText([]byte(said.Commitment)); err != nil {
		return none(err, "the receipt has no commitment")
	}
	if err := c.Check(salt, body); err != nil {
		return none(err, "its file was changed")
	}
	return body, nil
}

// Limits in bytes, unless the configuration says otherwise: for one day, so that calls with much output do not displace
// the bodies of other days, and for all bodies.
const (
	bodiesOfADay = 1 << 30
	bodiesInAll  = 8 << 30
)

// stored is the size of all bodies. trim reads it from the directory when the process starts; add counts from then on.
type stored struct {
	mu  sync.Mutex
	day map[int64]int64 // bytes, by days since 1970
	all int64
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// countBody counts a file and reports whether a limit is exceeded now.
func (b *bodies) countBody(at time.Time, size int64) bool {
	b.stored.mu.Lock()
	defer b.stored.mu.Unlock()
	if b.stored.day == nil {
		b.stored.day = map[int64]int64{}
	}
	b.stored.day[dayOf(at)] += size
	b.stored.all += size
	return b.stored.day[dayOf(at)] > b.daily || b.stored.all > b.most
}

// file is one body, or an incomplete body that was left behind.
type file struct {
	name string
	size int64
	at   time.Time
}

// enforceLimits removes the oldest bodies of each day that exceeds its limit. If all bodies together exceed their limit, it then
// removes the oldest of all. It removes a tenth more than it must, because it reads the whole directory and should not
// do so for every body.
func (b *bodies) enforceLimits() error {
	names, err := b.dir.List()
	if err != nil {
		return err
	}
	var files []file
	day, all := map[int64]int64{}, int64(0)
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(b.dir.Path, name))
		if err != nil || !bodyName().MatchString(name) || !st.Mode().IsRegular() || st.Size() == 0 {
			continue // gone meanwhile, not a body, or the mark of a forgotten receipt
		}
		files = append(files, file{name, st.Size(), st.ModTime()})
		day[dayOf(st.ModTime())] += st.Size()
		all += st.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	var errs []error
	gone := map[string]bool{}
	remove := func(f file) {
		id, part := splitBodyName(f.name)
		if err := b.removePart(id, part); err != nil {
			if len(errs) < 10 {
				errs = append(errs, err)
			}
			return
		}
		gone[f.name] = true
		day[dayOf(f.at)] -= f.size
		all -= f.size
	}
	crowded := map[int64]bool{}
	for d, n := range day {
		crowded[d] = n > b.daily
	}
	for _, f := range files { // first, so that a day over its limit costs the other days nothing
		if d := dayOf(f.at); crowded[d] && day[d] > b.daily-b.daily/10 {
			remove(f)
		}
	}
	for tooMany := all > b.most; tooMany && len(files) > 0 && all > b.most-b.most/10; files = files[1:] {
		if !gone[files[0].name] {
			remove(files[0])
		}
	}
	b.stored.mu.Lock()
	b.stored.day, b.stored.all = day, all
	b.stored.mu.Unlock()
	return errors.Join(errs...)
}

// ForgetEvent is the kind of the entry that records which bodies were forgotten.
const ForgetEvent = "forget"

// Body returns a part of a receipt that is kept beside the ledger and matches the receipt, or an error with the reason.
func (l *Log) Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	if !bodyName().MatchString(string(id) + "." + part) {
		return nil, bailey.Invalid.New("no receipt has that name", "")
	}
	return l.bodies.readBody(id, part, said)
}

// Forget removes the bodies of a receipt with their salts, and returns the parts. After that no party can tell their
// content. The entry that records this is durable first. The ledger verifies as before.
func (l *Log) Forget(ctx context.Context, f receipts.Forgotten) (receipts.Forgotten, error) {
	if !bodyName().MatchString(string(f.Receipt) + "." + receipts.InputPart) {
		return f, bailey.Invalid.New("no receipt has that name", "run bailey receipts list to show them")
	}
	if f.Parts = l.bodies.existingParts(f.Receipt); len(f.Parts) == 0 {
		return f, bailey.NotFound.New("nothing of "+string(f.Receipt)+" is stored beside the ledger",
			"run bailey receipts show to see what there was")
	}
	if err := l.Note(ctx, ForgetEvent, f); err != nil {
		return f, err
	}
	err := l.bodies.markForgotten(f.Receipt)
	if err == nil {
		_, err = l.bodies.removeAllParts(f.Receipt)
	}
	if err != nil {
		return f, bailey.Unavailable.Wrapf(err, owned.DiskRemedy(err)+"; then delete it again",
			"some bodies of %s could not be deleted", f.Receipt)
	}
	return f, nil
}

// keepInput begins to write an intent's input while the intent goes to the disk. The returned function waits until the
// input is written. It returns nil, or a Body that says that the input is not stored.
func (l *Log) keepInput(in *bailey.Intent) (wait func() *bailey.Body) {
	if in.InputBody == nil {
		return func() *bailey.Body { return nil }
	}
	said, salt := commitBody(in.InputBody)
	in.InputBody = said
	done := make(chan error, 1)
	go func() { done <- l.bodies.writeBody(in.Receipt, receipts.InputPart, salt, said.Bytes) }()
	return func() *bailey.Body {
		if err := <-done; err != nil {
			return l.notStored(in.Receipt, receipts.InputPart, said, err)
		}
		return nil
	}
}

// keepOutput stores the output of a tool and records the result in the outcome.
func (l *Log) keepOutput(o *bailey.Outcome) {
	for part, body := range map[string]**bailey.Body{receipts.StdoutPart: &o.StdoutBody,
		receipts.StderrPart: &o.StderrBody} {
		if *body == nil {
			continue
		}
		said, salt := commitBody(*body)
		if err := l.bodies.writeBody(o.Receipt, part, salt, said.Bytes); err != nil {
			said = l.notStored(o.Receipt, part, said, err)
		}
		*body = said
	}
}

func (l *Log) notStored(id bailey.ReceiptID, part string, said *bailey.Body, err error) *bailey.Body {
	l.log.Warn("a body is not stored", "receipt", id, "part", part, "bytes", said.Length, "err", err)
	return &bailey.Body{Length: said.Length, State: bailey.NotStored}
}

// Body returns a part that is kept beside the ledger and matches its commitment, or an error with the reason.
func (r *Reader) Body(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	dir, err := openOwned(filepath.Join(r.dir, "blobs"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b := bodies{dir: dir, keep: retention}
	return b.readBody(id, part, said)
}
