package redact

import (
	"bytes"
	"encoding/base64"
)

const (
	maxDepth = 3        // layers of base64 that are decoded
	minLayer = 24       // minimum number of base64 characters that could contain a find
	fullLine = 56       // a line with this many characters may continue in the next: PEM has 64, MIME 76
	maxLayer = 16 << 10 // characters that are held back; longer text is examined in pieces
)

// findInBase64 decides on a word of base64 (RFC 4648, either alphabet) that may continue over full lines. If its
// content has a find, all of it is hidden.
func (f *finder) findInBase64(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if f.depth >= maxDepth || i < f.blob || j-i < minLayer || kinds&dot != 0 || kinds&upper == 0 || kinds&lower == 0 {
		return 0, false
	}
	inner := f.keyLine(b, i, j, kinds)
	if !inner && !looksDecodable(b[i:j]) && !(j-i >= 40 && followsPuTTYHeader(b, i)) {
		return 0, false
	}
	end, open := base64End(b, i, j, final)
	if open {
		return 0, true
	}
	text := decodeBase64(b[i:end])
	if privateDER(text) || followsPuTTYHeader(b, i) || inner && bytes.IndexByte(b[i:end], '\n') >= 0 &&
		!isPrintable(text) {
		add(span{i, end, PrivateKey})
		return end, false
	}
	category := f.categoryInside(text)
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

// looksDecodable reports whether base64 begins like text or like a private key. Random data usually fails within three
// bytes.
func looksDecodable(w []byte) bool {
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
		if i == 0 && text[0] != 0x30 && !isPrintable(text[:3]) {
			return false
		}
	}
	return isPrintable(text[:n]) || privateDER(text[:n])
}

// base64End returns the end of the base64 text that begins with the word b[i:j]: after its padding, or on a later line.
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

// decodeBase64 decodes base64 of either alphabet, with white space. If the text is cut, it decodes the complete part.
func decodeBase64(text []byte) []byte {
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

// categoryInside returns the category of the first secret in the content of a layer.
func (f *finder) categoryInside(text []byte) Category {
	if len(text) < minLayer/2 || !isPrintable(text) {
		return ""
	}
	var found Category
	add := func(s span) {
		if found == "" && !Pseudonym(s.category) {
			found = s.category
		}
	}
	keys := keyBlock{}
	keys.scan(text, true, add)
	if found == "" && bytes.Contains(text, []byte(beginMark)) && bytes.Contains(text, []byte("PRIVATE KEY")) {
		found = PrivateKey
	}
	if found == "" {
		inner := finder{t: f.t, depth: f.depth + 1, last: byteRange{0, 0}}
		inner.scan(text, true, add)
	}
	return found
}

// privateDER reports whether text begins like a private key without armour: OpenSSH's own format, or a sequence that
// begins with a version (RFC 8017, A.1.2; RFC 5208; RFC 5915). A public key or a certificate begins with another
// sequence instead.
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

// keyLine reports whether a line looks like the inside of a private key: it has the length of a PEM line (RFC 7468,
// section 2) or of OpenSSH's, has nothing else on it, and is not in other armour. Two or more such lines are taken for
// a key that lost its first line, or both ends.
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
	return len(bytes.TrimLeft(lineBefore(b, i), " \t+->|")) == 0 && s.isRandom() && s.digits > 0 && !s.hex
}

// trackArmour records whether the following text is in armour that is not private, such as a certificate, a public key
// or a signature. Private keys in armour are found by block.
func (f *finder) trackArmour(w []byte) {
	switch {
	case bytes.HasSuffix(w, []byte("-BEGIN")), string(w) == "Public-Lines":
		f.armour = true
	case bytes.HasSuffix(w, []byte("-END")), string(w) == "Private-Lines":
		f.armour = false
	}
}

// followsPuTTYHeader reports whether the line before announces the private lines of PuTTY's format.
func followsPuTTYHeader(b []byte, i int) bool {
	if i == 0 || b[i-1] != '\n' {
		return false
	}
	return bytes.HasPrefix(lineBefore(b, i-1), []byte("Private-Lines:"))
}
