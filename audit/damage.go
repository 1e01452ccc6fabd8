package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// After a bad line a scanner reads on, to describe the damage as exactly as possible.

// tailBytes bounds, in bytes, how far a scanner reads on. No crash leaves so much, and a file may be endless.
const tailBytes = 64 << 20

// sector is the smallest amount that a disk writes, in bytes.
const sector = 512

// describeDamage reads on after a line that is not in the format, to distinguish a torn tail from damage further inside.
func (s *scanner) describeDamage(line []byte, cause error) error {
	bad := s.newBad(Frame, "%s", describeMalformed(line, cause))
	bytesBehind, zeros, ended := 0, 0, false
	more, window := line, []byte(nil) // the slice of ReadSlice is valid only until the next read
	for {
		bytesBehind += len(more)
		zeros += bytes.Count(more, []byte{0})
		if window = append(window[max(0, len(window)-MaxLine):], more...); endsWell(window) {
			return bad
		}
		if bytesBehind > tailBytes {
			bad.Detail += fmt.Sprintf("; no entry stands in the %d MiB behind it", tailBytes>>20)
			return bad
		}
		if bytes.HasSuffix(window, []byte("\n")) {
			window, ended = window[:0], true
		}
		var err error
		if more, err = s.r.ReadSlice('\n'); err == io.EOF && len(more) == 0 {
			break
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
	}
	// A crash leaves an unfinished line without a newline, or blocks that never reached the disk, which read as zeros.
	switch bad.Tail = zeros >= sector || !ended; {
	case !bad.Tail:
	case zeros == bytesBehind:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("%d zero bytes stand behind the last entry", bytesBehind)
	case ended:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("%d bytes stand behind the last entry, zeros among them",
			bytesBehind)
	default:
		bad.Reason, bad.Detail = Torn, fmt.Sprintf("the last line has no newline: %d bytes of it are there",
			bytesBehind)
	}
	return bad
}

// describeMalformed describes a malformed line. If the cause is not obvious, the description is more specific than cause.
func describeMalformed(line []byte, cause error) string {
	switch zeros := bytes.Count(line, []byte{0}); {
	case string(line) == "\n":
		return "the line is empty"
	case bytes.HasSuffix(line, []byte("\r\n")):
		return "the line ends in CR LF: the file was copied as text, which changed its bytes"
	case zeros > 0:
		return fmt.Sprintf("%d of the line's bytes are zero", zeros)
	}
	return cause.Error()
}

// describeMisplaced explains why another number is in the place of the next one. It reads later numbers as far as they can be
// trusted.
func (s *scanner) describeMisplaced(got uint64) error {
	want := s.head.Seq + 1
	if got < want {
		return s.newBad(Chain, "entry %d stands here once more, or not in its place", got)
	}
	for read := 0; read <= tailBytes; {
		line, err := s.r.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		read += len(line)
		if _, raw, wrong := splitLine(line); wrong == nil {
			switch n, _ := parseSeq(raw); n {
			case want:
				return s.newBad(Chain, "entry %d stands here and entry %d further on: they are not in their places",
					got, want)
			case want + 1:
				return s.newBad(Chain, "the entry's number was changed: it says %d", got)
			}
		}
		if err == io.EOF {
			break
		}
	}
	if got == want+1 {
		return s.newBad(Chain, "entry %d was taken out: entry %d follows", want, got)
	}
	return s.newBad(Chain, "entries %d to %d were taken out: entry %d follows", want, got-1, got)
}

// endsWell reports whether b ends in a well-formed line. If a writer appended after a torn line, the new line is joined
// to the torn bytes. It must be found, because it may be a receipt that a user holds.
func endsWell(b []byte) bool {
	const tries = 16 // data may contain the text of a frame; more is deliberate and not worth the time
	for range tries {
		i := bytes.Index(b, []byte(frameHash))
		if i < 0 {
			return false
		}
		b = b[i:]
		if _, raw, err := parseLine(b); err == nil {
			if _, err := parseEntry(raw); err == nil {
				return true
			}
		}
		b = b[1:]
	}
	return false
}
