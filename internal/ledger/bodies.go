package ledger

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/audit"
)

// The parts of a call that are kept as bodies.
const (
	InputPart  = "input"
	StdoutPart = "stdout"
	StderrPart = "stderr"
)

// retention is how long a body is kept, unless the configuration says otherwise.
const retention = 30 * 24 * time.Hour

// forgottenPart marks, as an empty file, that a receipt's bodies were forgotten.
const forgottenPart = "forgotten"

// bodyName is RECEIPT.PART: receipts are random, so no name follows from what is in the file.
var bodyName = lazy(`^[A-Za-z0-9._-]{1,64}\.(input|stdout|stderr|forgotten)$`)

// bodies is the directory blobs/ beside the segments. A file in it is 32 bytes of salt and then the body: what the
// ledger's commitment was made of, and gone with the file.
type bodies struct {
	dir   *directory
	log   *slog.Logger
	now   func() time.Time
	keep  time.Duration
	spare int64 // bytes that stay free on the disk
	daily int64 // bytes of the bodies of one day
	most  int64 // and of all of them
	stored
	full  chan struct{} // there is too much
	fresh chan string   // names of files that were written and not synced
	stop  chan struct{}
	gone  sync.WaitGroup
}

// openBodies opens the directory, making it when it is missing, and begins to tend it.
func openBodies(c Config, log *slog.Logger, now func() time.Time) (*bodies, error) {
	path := filepath.Join(c.Dir, "blobs")
	if err := makeDir(path); err != nil {
		return nil, unavailable(cure(err), err, "bodies have no directory beside the ledger")
	}
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	b := &bodies{dir: dir, log: log, now: now, keep: c.Retention, spare: c.Reserve, daily: c.DailyBodies, most: c.AllBodies, full: make(chan struct{}, 1), fresh: make(chan string, 1024), stop: make(chan struct{})}
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
	b.gone.Go(b.sync)
	b.gone.Go(b.tend)
	return b, nil
}

// close waits until what was written is on the disk.
func (b *bodies) close() error {
	close(b.stop)
	close(b.fresh)
	b.gone.Wait()
	return b.dir.Close()
}

// commit returns what the ledger is to say of a body, with the bytes still in it, and their salt.
func commit(body *bailey.Body) (*bailey.Body, audit.Salt) {
	var salt audit.Salt
	rand.Read(salt[:]) // never fails (crypto/rand)
	c := audit.Commit(salt, body.Bytes)
	return &bailey.Body{Length: int(c.Length), Commitment: c.Digest.String(), Bytes: body.Bytes}, salt
}

// write writes a body. It is whole in the file when this returns, and on the disk a little later: a body that a crash
// takes is missed by who asks for it, and the ledger holds all the same.
func (b *bodies) write(id bailey.ReceiptID, part string, salt audit.Salt, body []byte) error {
	if len(body) > 2*bailey.OutputCap {
		return fmt.Errorf("%d bytes are more than is kept", len(body))
	}
	if n, err := free(b.dir.path); err != nil || n < uint64(b.spare) {
		return errors.Join(err, fmt.Errorf("%d bytes are free, and %d are kept in reserve", n, b.spare))
	}
	f, err := b.dir.open(string(id)+"."+part, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(append(salt[:], body...))
	if err == nil && b.forgotten(id) { // looked for last: who forgets marks first and removes then
		err = errors.New("it was forgotten")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, b.remove(id, part))
	}
	if b.add(time.Now(), int64(len(salt)+len(body))) {
		select {
		case b.full <- struct{}{}:
		default: // it is known
		}
	}
	b.fresh <- string(id) + "." + part
	return nil
}

// forgotten tells whether the receipt's bodies were forgotten, also while its call is open.
func (b *bodies) forgotten(id bailey.ReceiptID) bool {
	_, err := os.Lstat(filepath.Join(b.dir.path, string(id)+"."+forgottenPart))
	return err == nil
}

// sync makes durable what was written, behind the calls. Many may wait for it, so none of them holds a descriptor: a file
// that is opened once more syncs what was written before, and hears of errors that nobody has heard of (fsync(2)).
func (b *bodies) sync() {
	for name := range b.fresh {
		if err := b.settle(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // it was forgotten meanwhile
			b.log.Error("a body may be lost", "file", name, "err", err)
		}
		if len(b.fresh) == 0 {
			if err := syncDir(b.dir.path); err != nil {
				b.log.Error("bodies may be lost", "err", err)
			}
		}
	}
}

func (b *bodies) settle(name string) error {
	f, err := b.dir.open(name, os.O_RDWR)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// tend removes bodies that are too old, now and daily, and the oldest as soon as there are too many.
func (b *bodies) tend() {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		if err := errors.Join(b.sweep(), b.trim()); err != nil {
			b.log.Error("bodies could not be swept", "err", err)
		}
		for again := true; again; {
			select {
			case <-b.full:
				if err := b.trim(); err != nil {
					b.log.Error("bodies could not be removed, of which there are too many", "err", err)
				}
			case <-day.C:
				again = false
			case <-b.stop:
				return
			}
		}
	}
}

// sweep removes bodies past their time, whether a receipt names them or not, and what a crash left of those that
// were forgotten. What has no name of ours is left alone.
func (b *bodies) sweep() error {
	names, err := b.dir.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !bodyName().MatchString(name) {
			continue
		}
		st, err := os.Lstat(filepath.Join(b.dir.path, name))
		if err != nil {
			continue // another sweep was quicker
		}
		id, part := split(name)
		if b.now().Sub(st.ModTime()) > b.keep {
			err = b.remove(id, part)
		} else if part == forgottenPart {
			_, err = b.drop(id)
		}
		if err != nil && len(errs) < 10 {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func split(name string) (bailey.ReceiptID, string) {
	i := strings.LastIndexByte(name, '.')
	return bailey.ReceiptID(name[:i]), name[i+1:]
}

func (b *bodies) remove(id bailey.ReceiptID, part string) error {
	err := b.dir.remove(string(id) + "." + part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kept returns which parts of a receipt there are.
func (b *bodies) kept(id bailey.ReceiptID) (parts []string) {
	for _, part := range []string{InputPart, StdoutPart, StderrPart} {
		if _, err := os.Lstat(filepath.Join(b.dir.path, string(id)+"."+part)); err == nil {
			parts = append(parts, part)
		}
	}
	return parts
}

// drop removes all parts of a receipt and returns which there were.
func (b *bodies) drop(id bailey.ReceiptID) (parts []string, err error) {
	parts = b.kept(id)
	for _, part := range parts {
		err = errors.Join(err, b.remove(id, part))
	}
	if len(parts) > 0 {
		err = errors.Join(err, syncDir(b.dir.path))
	}
	return parts, err
}

// mark leaves the empty file that says a receipt's bodies were forgotten.
func (b *bodies) mark(id bailey.ReceiptID) error {
	f, err := b.dir.open(string(id)+"."+forgottenPart, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(b.dir.path))
}

// read returns a body as it was committed to, or says why there is none.
func (b *bodies) read(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	none := func(err error, why string) ([]byte, error) {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: "the " + part + " of " + string(id) + " is not there: " + why, Err: err}
	}
	if said.State != "" {
		return none(nil, said.State)
	}
	f, err := b.dir.open(string(id)+"."+part, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if b.forgotten(id) {
			return none(nil, "it was forgotten")
		}
		return none(nil, fmt.Sprintf("bodies are kept for %d days, or less if there are too many; or it was forgotten, or lost", int(b.keep.Hours()/24)))
	}
	if err != nil {
		return none(err, "its file is refused")
	}
	defer f.Close()
	var salt audit.Salt
	if _, err := io.ReadFull(f, salt[:]); err != nil {
		return none(err, "its file is cut")
	}
	body, err := io.ReadAll(io.LimitReader(f, 2*bailey.OutputCap+1))
	if err != nil {
		return none(err, "its file cannot be read")
	}
	c := audit.Commitment{Length: uint64(said.Length)}
	if err := c.Digest.UnmarshalText([]byte(said.Commitment)); err != nil {
		return none(err, "the receipt names no commitment")
	}
	if err := c.Check(salt, body); err != nil {
		return none(err, "its file was changed")
	}
	return body, nil
}
