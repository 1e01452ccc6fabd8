package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger/owned"
)

// Verify verifies the ledger up to its durable end at the time of the call.
func (l *Log) Verify() (audit.Report, error) {
	files, err := l.dir.openSegments()
	if err != nil {
		return audit.Report{}, err
	}
	defer closeAll(files)
	var readers []io.Reader
	for _, r := range upTo(files, l.Durable()) {
		readers = append(readers, r)
	}
	return audit.Verify(readers...)
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

// VerifyCopy verifies a copy of a ledger. The owner and the permissions of a copy do not matter; they are returned as
// notes, because correcting them would alter evidence. Segments must still be regular files. If the directory does not
// exist or holds no segment, VerifyCopy returns an error and no report.
func VerifyCopy(ctx context.Context, dir string, c audit.Check) (report audit.Report, unfit []string, err error) {
	d, notes, err := openCopy(filepath.Clean(dir))
	if err != nil {
		return report, nil, err
	}
	defer d.Close()
	names, err := d.listSegments()
	if err == nil && len(names) == 0 {
		err = emptyCopyError(dir)
	}
	if err == nil {
		report, err = d.verifySettled(ctx, c)
	}
	return report, notes.listCauses(), err
}

func openCopy(path string) (*directory, *copyNotes, error) {
	notes := &copyNotes{}
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		notes.addCause(path, errors.New("it is a symbolic link"))
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil, absentBy(path, err)
	}
	d, err := owned.OpenUnchecked(real)
	if err != nil {
		return nil, nil, absentBy(path, err)
	}
	d.Path, d.Accept = path, notes.addCause
	if unfit := d.CheckFit(); unfit != nil {
		notes.addCause(path, unfit)
	}
	return &directory{Dir: d}, notes, nil
}

// emptyCopyError returns the error for a directory without a ledger.
func emptyCopyError(dir string) error {
	e := invalidCopyError("there is no ledger in " + dir + ": it does not contain " + segmentFile(1))
	if below := filepath.Join(dir, "ledger"); Begun(below) {
		e.Hint = "it is in " + below
	}
	return e
}

func invalidCopyError(message string) *bailey.Error {
	return bailey.Invalid.New(message, "name the directory that contains the segments, "+segmentFile(1)+" and up")
}

func absentBy(path string, err error) error {
	what := invalidCopyError("the directory " + path + " cannot be read")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what = invalidCopyError("there is no directory " + path)
	case errors.Is(err, syscall.ENOTDIR):
		what = invalidCopyError(path + " is not a directory")
	default:
		what.Err = err
	}
	return what
}

// copyNotes records why a copy is unfit to be written: each cause with the names of its files.
type copyNotes struct {
	causes []string
	names  map[string][]string
}

func (r *copyNotes) addCause(name string, cause error) {
	if r.names == nil {
		r.names = make(map[string][]string)
	}
	why := cause.Error()
	if !slices.Contains(r.causes, why) {
		r.causes = append(r.causes, why)
	}
	if !slices.Contains(r.names[why], name) { // a ledger that grows is read more than once
		r.names[why] = append(r.names[why], name)
	}
}

func (r *copyNotes) listCauses() []string {
	var said []string
	for _, why := range r.causes {
		who := r.names[why][0]
		if more := len(r.names[why]) - 1; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		said = append(said, who+": "+why)
	}
	return said
}
