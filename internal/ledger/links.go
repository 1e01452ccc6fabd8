package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"bailey/audit"
)

// checkLinks checks that each of the segments, given in order, begins where the one before it ends. It returns the Start of
// the last one, which is zero for a ledger's first segment. The lines between a segment's first and last are not read.
func (d *directory) checkLinks(names []string) (start audit.Start, err error) {
	var end audit.Head // of the previous segment
	for i, name := range names {
		f, err := d.openRegular(name, os.O_RDONLY)
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
			return audit.Start{}, damagedError(d.path,
				&audit.Bad{Segment: i + 1, Entry: max(end.Seq+1, 1), Reason: audit.Started, Detail: err.Error()})
		}
	}
	return start, nil
}

// readStartAfter reads a segment's first line, which must follow after end.
func readStartAfter(f *os.File, end audit.Head) (audit.Start, error) {
	start, err := firstOf(f)
	if err == nil && start.After() != end {
		err = fmt.Errorf("it begins after entry %d, %s, and the segment before it ends with entry %d, %s", start.Size,
			start.Head, end.Seq, end.Hash)
	}
	return start, err
}

// firstOf returns the Start in a segment's first line.
func firstOf(f *os.File) (audit.Start, error) {
	line, err := bufio.NewReaderSize(io.LimitReader(f, audit.MaxLine+1), 4<<10).ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return audit.Start{}, errors.New("the segment holds no entry")
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
	return audit.Head{}, errors.New("it does not end in an entry, and another segment follows")
}
