package mcp

import (
	"bufio"
	"encoding/json"
	"io"
)

// maxLine limits one message in bytes, without its line end.
const maxLine = 1 << 20

// lineReader splits a stream into lines and keeps at most maxLine of each.
type lineReader struct {
	r   *bufio.Reader
	buf []byte
}

func newLines(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 64<<10)} }

// tooLong means that a line was longer than maxLine. The line was read to its end and dropped. ID is its id, if one was
// found.
type tooLong struct{ ID json.RawMessage }

func (tooLong) Error() string { return "the message is over 1 MiB" }

// nextLine returns the next line, which is valid until the next call. After a tooLong error, reading can continue. The last
// line need not end in a line feed.
func (l *lineReader) nextLine() ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > maxLine+1 {
			return nil, l.skipRest(part, err)
		}
		l.buf = append(l.buf, part...)
		switch {
		case err == bufio.ErrBufferFull:
		case err == nil:
			return l.checkLength(l.buf[:len(l.buf)-1])
		case len(l.buf) > 0 && err == io.EOF:
			return l.checkLength(l.buf)
		default:
			return nil, err
		}
	}
}

// checkLength refuses a last line that is one byte too long because it has no line feed.
func (l *lineReader) checkLength(line []byte) ([]byte, error) {
	if len(line) > maxLine {
		return nil, tooLong{idOf(line)}
	}
	return line, nil
}

// skipRest drops the rest of a line that begins in buf and part.
func (l *lineReader) skipRest(part []byte, err error) error {
	var f idFinder
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

// idOf returns the id of a refused message, or nil.
func idOf(line []byte) json.RawMessage {
	var f idFinder
	f.Write(line)
	return f.ID()
}
