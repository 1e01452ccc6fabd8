package redact

import (
	"bytes"
	"encoding/base64"
)

const (
	maxDepth = 3        // layers of base64 that are looked through
	minLayer = 24       // characters of base64 that could hold anything
	fullLine = 56       // a line of that many characters may go on in the next: PEM has 64, MIME 76
	maxLayer = 16 << 10 // characters that are held back; a longer text is looked at in pieces
)

// layer decides on a word of base64 (RFC 4648, either alphabet) that goes on over full lines: when it
// says something in which something is found, it is hidden whole.
func (f *finder) layer(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if f.depth >= maxDepth || i < f.blob || j-i < minLayer || kinds&dot != 0 || kinds&upper == 0 || kinds&lower == 0 {
		return 0, false
	}
	inner := f.keyLine(b, i, j, kinds)
	if !inner && !worth(b[i:j]) && !(j-i >= 40 && putty(b, i)) {
		return 0, false
	}
	end, open := base64End(b, i, j, final)
	if open {
		return 0, true
	}
	text := decode(b[i:end])
	if privateDER(text) || putty(b, i) || inner && bytes.IndexByte(b[i:end], '\n') >= 0 && !printable(text) {
		add(span{i, end, PrivateKey})
		return end, false
	}
	category := f.inside(text)
	if category == "" {
		f.blob = end
		return 0, false
	}
	add(span{i, end, category})
	if end-i >= maxLayer {
		f.tail = category
	}
	return end, false
}

// worth holds for base64 that begins like text, or like a private key. What is random does not last for
// three bytes.
func worth(w []byte) bool {
	w = w[:min(len(w), 64)&^3]
	var text [48]byte
	n := 0
	for i := 0; i < len(w); i += 4 {
		var v uint32
		for _, c := range w[i : i+4] {
			six, ok := sixBits(c)
			if !ok {
				return false
			}
			v = v<<6 | uint32(six)
		}
		text[n], text[n+1], text[n+2] = byte(v>>16), byte(v>>8), byte(v)
		n += 3
		if i == 0 && text[0] != 0x30 && !printable(text[:3]) {
			return false
		}
	}
	return printable(text[:n]) || privateDER(text[:n])
}

// base64End returns where the text ends that begins with the word b[i:j]: behind its padding, or in a
// later line.
func base64End(b []byte, i, j int, final bool) (end int, open bool) {
	from := i
	for {
		full := j-from >= fullLine
		end = j
		for end < len(b) && b[end] == '=' && end-j < 2 {
			end++
		}
		if end == len(b) && !final {
			return 0, true
		}
		if end > j || !full || end-i >= maxLayer {
			return end, false
		}
		next := end
		for next < len(b) && classes[b[next]]&gap != 0 && next-end < 64 {
			next++
		}
		if next == len(b) && !final {
			return 0, true
		}
		if bytes.IndexByte(b[end:next], '\n') < 0 || next == len(b) {
			return end, false
		}
		stop := next
		for stop < len(b) && stop-i < maxLayer && base64Byte(b[stop]) {
			stop++
		}
		if stop == len(b) && !final {
			return 0, true
		}
		if stop == next || stop < len(b) && b[stop] != '=' && classes[b[stop]]&(gap|quote) == 0 {
			return end, false
		}
		from, j = next, stop
	}
}

func base64Byte(c byte) bool {
	_, ok := sixBits(c)
	return ok
}

// decode reads base64 of either alphabet, with white space, and what of it is whole if it is cut.
func decode(text []byte) []byte {
	clean := make([]byte, 0, len(text))
	for _, c := range text {
		switch {
		case c == '-':
			c = '+'
		case c == '_':
			c = '/'
		case !base64Byte(c):
			continue
		}
		clean = append(clean, c)
	}
	if len(clean)%4 == 1 {
		clean = clean[:len(clean)-1]
	}
	out := make([]byte, base64.RawStdEncoding.DecodedLen(len(clean)))
	n, _ := base64.RawStdEncoding.Decode(out, clean)
	return out[:n]
}

// inside returns the category of the first secret in what a layer holds.
func (f *finder) inside(text []byte) Category {
	if len(text) < minLayer/2 || !printable(text) {
		return ""
	}
	var found Category
	add := func(s span) {
		if found == "" && !Pseudonym(s.category) {
			found = s.category
		}
	}
	keys := block{}
	keys.scan(text, true, add)
	if found == "" && bytes.Contains(text, []byte(beginMark)) && bytes.Contains(text, []byte("PRIVATE KEY")) {
		found = PrivateKey
	}
	if found == "" {
		inner := finder{t: f.t, depth: f.depth + 1, last: extent{0, 0}}
		inner.scan(text, true, add)
	}
	return found
}

// privateDER holds for what begins like a private key without its armour: OpenSSH's own form, or a sequence
// that begins with a version (RFC 8017, A.1.2; RFC 5208; RFC 5915) where a public key or a certificate has another sequence.
func privateDER(text []byte) bool {
	if bytes.HasPrefix(text, []byte("openssh-key-v1\x00")) {
		return true
	}
	if len(text) < 16 || text[0] != 0x30 || text[1] == 0x80 {
		return false
	}
	body := text[2:]
	if text[1] > 0x80 && text[1] < 0x84 {
		body = body[text[1]-0x80:]
	}
	version := bytes.HasPrefix(body, []byte{2, 1, 0}) || bytes.HasPrefix(body, []byte{2, 1, 1})
	return version && (body[3] == 2 || body[3] == 4 || body[3] == 0x30)
}

// keyLine holds for a line that looks like one of the inside of a private key: as long as PEM's (RFC 7468, section 2) or
// OpenSSH's, with nothing else on it, and not in the armour of something else. Two or more of them are taken for a key
// that lost its first line, or both ends.
func (f *finder) keyLine(b []byte, i, j int, kinds class) bool {
	if f.armour || j == len(b) || classes[b[j]]&line == 0 {
		return false
	}
	if b[i] == '+' || b[i] == '-' { // of a diff
		if n := j - i; n == 65 || n == 71 {
			i++
		}
	}
	w := b[i:j]
	if len(w) != 64 && len(w) != 70 || bytes.ContainsAny(w, "-_~%.") {
		return false
	}
	s := shapeOf(w)
	return len(bytes.TrimLeft(lineBefore(b, i), " \t+->|")) == 0 && s.random() && s.digits > 0 && !s.hex
}

// armoured keeps whether what follows stands in the armour of something that is not private: a certificate, a public key,
// a signature. Private keys in armour are found by block.
func (f *finder) armoured(w []byte) {
	switch {
	case bytes.HasSuffix(w, []byte("-BEGIN")), string(w) == "Public-Lines":
		f.armour = true
	case bytes.HasSuffix(w, []byte("-END")), string(w) == "Private-Lines":
		f.armour = false
	}
}

// putty holds when the line before says that what follows are the private lines of PuTTY's form.
func putty(b []byte, i int) bool {
	if i == 0 || b[i-1] != '\n' {
		return false
	}
	return bytes.HasPrefix(lineBefore(b, i-1), []byte("Private-Lines:"))
}
