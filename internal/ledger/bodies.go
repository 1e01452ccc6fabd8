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
	dir   *directory
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
	if err := makeDir(path); err != nil {
		return nil, unavailableError(diskErrorHint(err), err, "bodies have no directory beside the ledger")
	}
	dir, err := openDir(path)
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
		return fmt.Errorf("%d bytes are more than is kept", len(body))
	}
	if n, err := freeBytes(b.dir.path); err != nil || n < uint64(b.spare) {
		return errors.Join(err, fmt.Errorf("%d bytes are free, and %d are kept in reserve", n, b.spare))
	}
	f, err := b.dir.openRegular(string(id)+"."+part, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(append(salt[:], body...))
	if err == nil && b.isForgotten(id) { // checked last: Forget marks first and then removes
		err = errors.New("it was forgotten")
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
	_, err := os.Lstat(filepath.Join(b.dir.path, string(id)+"."+forgottenPart))
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
			if err := syncDir(b.dir.path); err != nil {
				b.log.Error("bodies may be lost", "err", err)
			}
		}
	}
}

func (b *bodies) syncFile(name string) error {
	f, err := b.dir.openRegular(name, os.O_RDWR)
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
			b.log.Error("bodies could not be swept", "err", err)
		}
		for again := true; again; {
			select {
			case <-b.full:
				if err := b.enforceLimits(); err != nil {
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

// removeExpired removes expired bodies, whether or not a receipt names them, and forgotten bodies that a crash left. Files with
// other names are left alone.
func (b *bodies) removeExpired() error {
	names, err := b.dir.listNames()
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
	err := b.dir.removeFile(string(id) + "." + part)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// existingParts returns the parts of a receipt that exist.
func (b *bodies) existingParts(id bailey.ReceiptID) (parts []string) {
	for _, part := range []string{receipts.InputPart, receipts.StdoutPart, receipts.StderrPart} {
		if _, err := os.Lstat(filepath.Join(b.dir.path, string(id)+"."+part)); err == nil {
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
		err = errors.Join(err, syncDir(b.dir.path))
	}
	return parts, err
}

// markForgotten writes the empty file that says that a receipt's bodies were forgotten.
func (b *bodies) markForgotten(id bailey.ReceiptID) error {
	f, err := b.dir.openRegular(string(id)+"."+forgottenPart, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(b.dir.path))
}

// readBody returns a body that matches its commitment, or an error with the reason.
func (b *bodies) readBody(id bailey.ReceiptID, part string, said bailey.Body) ([]byte, error) {
	none := func(err error, why string) ([]byte, error) {
		return nil, bailey.NotFound.Wrap(err, "the "+part+" of "+string(id)+" is not there: "+why, "")
	}
	if said.State != "" {
		return none(nil, said.State)
	}
	f, err := b.dir.openRegular(string(id)+"."+part, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if b.isForgotten(id) {
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
