package mcp

import (
	"bufio"
	"encoding/json"
	"io"
)

// maxLine bounds one message in bytes, its line end not counted.
const maxLine = 1 << 20

// lines cuts a stream into lines and never holds more than maxLine of one.
type lines struct {
	r   *bufio.Reader
	buf []byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// tooLong is a line over maxLine. It was read to its end and dropped; ID is what was seen of it.
type tooLong struct{ ID json.RawMessage }

func (tooLong) Error() string { return "the message is over 1 MiB" }

// next returns the next line, valid until the next call, or a tooLong, after which reading goes on.
// The last line need not end in a line feed.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > maxLine+1 {
			return nil, l.skip(part, err)
		}
		l.buf = append(l.buf, part...)
		switch {
		case err == bufio.ErrBufferFull:
		case err == nil:
			return l.fit(l.buf[:len(l.buf)-1])
		case len(l.buf) > 0 && err == io.EOF:
			return l.fit(l.buf)
		default:
			return nil, err
		}
	}
}

// fit refuses a line that is long by the byte its missing line feed would have taken.
func (l *lines) fit(line []byte) ([]byte, error) {
	if len(line) > maxLine {
		return nil, tooLong{idOf(line)}
	}
	return line, nil
}

// skip drops the rest of a line whose beginning is in buf and part.
func (l *lines) skip(part []byte, err error) error {
	var f finder
	f.Write(l.buf)
	for {
		f.Write(part)
		if err != bufio.ErrBufferFull {
			break
		}
		part, err = l.r.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return err
	}
	return tooLong{f.ID()}
}

// idOf returns what can be seen of the id of a message that is refused, or nil.
func idOf(line []byte) json.RawMessage {
	var f finder
	f.Write(line)
	return f.ID()
}
