package ledger

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"bailey/audit"
)

// Verify verifies the ledger up to its durable end at the time of the call.
func (l *Log) Verify() (audit.Report, error) {
	files, err := l.dir.openSegments()
	if err != nil {
		return audit.Report{}, err
	}
	defer closeAll(files)
	return audit.Verify(l.upToDurable(files)...)
}

// settle is longer than the time from a group's first byte in the file to its last.
const settle = 200 * time.Millisecond

// Verify verifies the ledger in dir without opening it for writing, even if another process writes to it. If the ledger
// is missing, the report is not in order. If a directory or file is refused, Verify returns an error.
func Verify(dir string) (audit.Report, error) {
	return VerifyAgainst(context.Background(), dir, audit.Check{})
}

// VerifyAgainst is Verify, and also compares the ledger with checkpoints. They must be read before the ledger, so that
// a ledger that grows meanwhile still holds them.
func VerifyAgainst(ctx context.Context, dir string, c audit.Check) (audit.Report, error) {
	d, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c.Verify()
	}
	if err != nil {
		return audit.Report{}, err
	}
	defer d.Close()
	return d.verifySettled(ctx, c)
}

// verifySettled verifies, and repeats this while the last line may still be incomplete.
func (d *directory) verifySettled(ctx context.Context, c audit.Check) (audit.Report, error) {
	// While a group is being written, its last line may be incomplete. If a tail stays, it is torn.
	for last := int64(-1); ; time.Sleep(settle) {
		report, err := d.verifyOnce(ctx, c)
		if err != nil || report.OK || !report.FirstBad.Tail || report.FirstBad.Offset == last {
			return report, err
		}
		last = report.FirstBad.Offset
	}
}

func (d *directory) verifyOnce(ctx context.Context, c audit.Check) (audit.Report, error) {
	names, err := d.listSegments()
	if err != nil || len(names) == 0 {
		report, _ := c.Verify()
		return report, err
	}
	files, err := d.openSegments()
	if err != nil {
		return audit.Report{}, err
	}
	defer closeAll(files)
	readers := make([]io.Reader, len(files))
	for i, f := range files {
		readers[i] = contextReader{ctx, limitToSize(f)}
	}
	return c.Verify(readers...)
}

// contextReader reads until ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (h contextReader) Read(b []byte) (int, error) {
	if h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	return h.r.Read(b)
}

// limitToSize reads f up to its current length.
func limitToSize(f *os.File) io.Reader {
	st, err := f.Stat()
	if err != nil {
		return f
	}
	return io.LimitReader(f, st.Size())
}
