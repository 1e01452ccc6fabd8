package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// findInLongWord decides on a word of ten bytes or more: it searches for tokens by prefix, tokens by format, and encoded text. It
// returns zero if it finds nothing.
func (f *finder) findInLongWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if end, open := f.findByPrefix(b, i, j, kinds, final, add); open || end > 0 {
		return end, open
	}
	if kinds&digit == 0 && j-i < 24 {
		return 0, false
	}
	if kinds&dot != 0 && (isDiscordToken(b[i:j]) || isTerraformToken(b[i:j])) {
		add(span{i, j, APIKey})
		return j, false
	}
	if end := f.findJWT(b, i, j, kinds, add); end > 0 {
		return end, false
	}
	if j-i < 16 {
		return 0, false
	}
	if end, open := f.findInBase64(b, i, j, kinds, final, add); open || end > 0 {
		return end, open
	}
	if s, category := f.findRandomWord(b, i, j, kinds); s.end > 0 {
		end := s.end
		for end < len(b) && b[end] == '=' && end-s.end < 2 {
			end++
		}
		if end == len(b) && !final {
			return 0, true
		}
		add(span{s.start, end, category})
		return max(j, end), false
	}
	return 0, false
}

// findByPrefix finds tokens by their prefix: at the start of the word, after a slash in it, and anywhere if the prefix is long
// enough not to occur by chance.
func (f *finder) findByPrefix(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if kinds&(digit|upper|joint) == 0 {
		return 0, false
	}
	k := foldThree(b[i], b[i+1], b[i+2]) << 8
	fresh := true
	stop := j - 9
	if kinds&^alnum_ == 0 { // every prefix that may be inside a word has other characters than letters and digits
		stop = i + 1
	}
	for p, tries := i, 0; p < stop && tries < maxTries; p++ {
		k = k>>8 | uint32(b[p+3]|0x20)<<24
		was := fresh
		fresh = classes[b[p]]&slash != 0
		if was && !f.t.fours.has(k) && !f.t.starts.has(k<<8>>8) || !was && !f.t.inner.has(k) {
			continue
		}
		end, category, read, open := f.t.findToken(b, i, p, final)
		if open {
			return 0, true
		}
		if end == 0 && read > 64 {
			tries++
		}
		if end > 0 {
			end = goesOn(b, end, j)
			add(span{p, end, category})
			if end-p >= maxValue {
				f.tail = category
			}
			return end, false
		}
	}
	return f.findTwilioID(b, i, j, add), false
}

// goesOn returns the end of a token that is longer than its kind, up to the end of the word.
func goesOn(b []byte, end, j int) int {
	for end+1 < j && classes[b[end]]&(joint|dot) != 0 && classes[b[end+1]]&alnum_ != 0 {
		end = runEnd(b[:j], end+1, alnum_|joint)
	}
	return end
}

// findTwilioID finds account and key ids: two letters and 32 hex digits.
func (f *finder) findTwilioID(b []byte, i, j int, add func(span)) int {
	if j-i != 34 || b[i] != 'A' && b[i] != 'S' || b[i+1] != 'C' && b[i+1] != 'K' {
		return 0
	}
	if s := shapeOf(b[i+2 : j]); s.n == s.digits+s.lowers && (s.hex || isRepeatedChar(b[i+2:j])) {
		add(span{i, j, APIKey})
		return j
	}
	return 0
}

// isDiscordToken reports whether a word is the token of a Discord bot: the base64 of its number, a time, a code.
func isDiscordToken(w []byte) bool {
	if len(w) < 55 || len(w) > 80 || w[0] < 'M' || w[0] > 'O' {
		return false
	}
	p := bytes.Split(w, []byte("."))
	if len(p) != 3 || len(p[0]) < 22 || len(p[0]) > 28 || len(p[1]) != 6 || len(p[2]) < 27 || len(p[2]) > 40 {
		return false
	}
	return shapeOf(p[0]).isMixedRandom()
}

// isTerraformToken reports whether a word is a token of HCP Terraform.
func isTerraformToken(w []byte) bool {
	return len(w) >= 60 && bytes.Index(w, []byte(".atlasv1.")) == 14
}

// categoryForKind returns the category of a value that was found by its name.
func categoryForKind(a valueKind) Category {
	if a == forSecret {
		return Password
	}
	return Token
}

// findJWT finds JSON web tokens (RFC 7519): parts of base64url joined by dots, the first of which is a JSON object.
func (f *finder) findJWT(b []byte, i, j int, kinds class, add func(span)) int {
	if kinds&dot == 0 || kinds&upper == 0 {
		return 0
	}
	at := bytes.Index(b[i:j], []byte("eyJ"))
	if at < 0 || at > 0 && classes[b[i+at-1]]&alnum_ != 0 {
		return 0
	}
	head, rest, dotted := bytes.Cut(b[i+at:j], []byte("."))
	if !dotted || len(rest) < 8 || !isJSONObject(head) {
		return 0
	}
	add(span{i + at, j, JWT})
	if j-i >= maxWord {
		f.tail = JWT
	}
	return j
}

// isJSONObject reports whether text is the base64url of a JSON object or of the beginning of one.
func isJSONObject(text []byte) bool {
	raw, _ := base64.RawURLEncoding.DecodeString(string(bytes.TrimRight(text, "=")))
	if json.Valid(raw) {
		return true
	}
	return bytes.HasPrefix(raw, []byte(`{"`)) && isPrintable(raw)
}

// isPrintable reports whether raw is text: only printable ASCII and white space, or UTF-8 that is mostly that.
func isPrintable(raw []byte) bool {
	odd := 0
	for _, c := range raw {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != 0x1b && c != 0 {
			return false
		}
		if c >= 0x7f {
			odd++
		}
	}
	return odd*10 <= len(raw)
}
