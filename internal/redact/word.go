package redact

import "bytes"

// handleWord processes the word that begins at i. It returns false if it must wait for more bytes.
func (f *finder) handleWord(b []byte, i int, final bool, add func(span)) bool {
	j, kinds := i, class(0)
	if f.open > i {
		j, kinds = f.open, f.kinds
	}
	for limit := min(len(b), i+maxWord); j < limit; j++ {
		k := classes[b[j]]
		if k&word == 0 {
			break
		}
		kinds |= k
	}
	f.open, f.kinds = j, kinds
	if j == len(b) && j-i < maxWord && !final {
		return false
	}
	if kinds&alnum_ == 0 && (f.ask == nothing || f.sep.opened == 0) { // a dash, a dot
		if f.sep.separatesValue() { // a comment
			f.ask = nothing
		}
		f.sep.n += uint16(j - i)
		f.next, f.open = j, 0
		return true
	}
	if f.ask != nothing && f.isValueNext() && !f.isPassingWord(b, i, j) {
		end, open := f.decideValue(b, i, final, add)
		if open {
			return false
		}
		if end > i {
			f.next, f.open = end, 0
			return true
		}
	}
	end, open := f.findInWord(b, i, j, kinds, final, add)
	if open {
		return false
	}
	f.next, f.open = end, 0
	if end < j {
		f.open = j // avoids a second measurement of the rest of the word
	}
	return true
}

// isPlainWord reports whether a short word expects no value and no sign after it can start a find. Most words are like that.
func (f *finder) isPlainWord(b []byte, i, j int, kinds class) bool {
	if b[j] == ':' && kinds == digit && j-i == 2 && isClockTime(b, i) {
		return true
	}
	if b[j] == ':' && (j+1 == len(b) || classes[b[j+1]]&(gap|quote) == 0) || b[j] == '=' || b[i] == '-' ||
		kinds&alnum_ == 0 {
		return false
	}
	if kinds == digit {
		return true
	}
	if j-i >= 7 && kinds&(digit|dot) == digit|dot {
		return false
	}
	n := j
	for n > i && classes[b[n-1]]&(digit|joint|dot) != 0 {
		n--
	}
	return !f.t.tails.mayEndName(b[i:n]) && !idEnding(b[i:n])
}

// isClockTime reports whether the text is a time of day (hours and minutes, with or without seconds) or the rest of one. No
// address begins like that.
func isClockTime(b []byte, i int) bool {
	if i > 0 && b[i-1] == ':' {
		return true
	}
	for _, n := range []int{5, 8} {
		if i+n >= len(b) || classes[b[i+n-1]]&classes[b[i+n-2]]&digit == 0 {
			return false
		}
		if b[i+n] != ':' {
			return !hexDigit(b[i+n])
		}
	}
	return false
}

// isLoneColon reports whether no address can begin at a colon.
func isLoneColon(b []byte, i int) bool {
	return i > 0 && classes[b[i-1]]&word != 0 || i+1 < len(b) && b[i+1] != ':' && (i == 0 || b[i-1] != ':')
}

// findInWord decides on a word, and on the value that it expects next.
func (f *finder) findInWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	end, open := f.decideWord(b, i, j, kinds, final, add)
	if !open && j-i >= 7 && kinds&digit != 0 &&
		(kinds&dot != 0 || kinds&joint != 0 && bytes.Contains(b[i:min(j, i+maxName)], []byte("ip-"))) {
		ipv4(b, i, j, add)
	}
	return end, open
}

// decideWord is look without addresses.
func (f *finder) decideWord(b []byte, i, j int, kinds class, final bool, add func(span)) (int, bool) {
	if j < len(b) && b[j] == ':' {
		if end, open := f.findAtColon(b, i, j, kinds, final, add); open || end > 0 {
			return f.finishWord(i, j, end, open)
		}
	}
	if j-i >= minLong {
		if end, open := f.findInLongWord(b, i, j, kinds, final, add); open || end > 0 {
			return f.finishWord(i, j, end, open)
		}
	}
	if f.isPassingWord(b, i, j) {
		f.skipPassing(b[i:j])
		return j, false
	}
	if kinds&joint != 0 {
		f.trackArmour(b[i:j])
	}
	if kinds&letter == 0 {
		f.ask, f.last, f.sep = nothing, byteRange{i, j}, separator{}
		return j, false
	}
	f.ask = f.t.valueKindAfter(b[i:j])
	if f.scheme {
		f.ask, f.scheme = forScheme, false
	}
	if j < len(b) && b[j] == '=' {
		if end, open := f.findAzureSettings(b, i, j, final); open || end > 0 {
			if end > 0 {
				add(span{i, end, Connection})
			}
			return end, open
		}
	}
	if f.ask == nothing && j-i > 2 && b[i] == '-' && b[i+1] == 'p' {
		if isAttachedPassword(b, i, j) {
			add(span{i + 2, j, Password})
		}
	}
	f.last, f.sep = byteRange{i, j}, separator{}
	return j, false
}

// finishWord finishes a word that was decided. If the word must wait, it is examined again later, in the same context.
func (f *finder) finishWord(i, j, end int, open bool) (int, bool) {
	if !open {
		f.ask, f.sep, f.last = nothing, separator{}, byteRange{i, j}
	}
	return end, open
}

// isPassingWord reports whether a word may stand between a name and its value, as in
//
//	var token string = "…"
//	<add key="Password" value="…">
//	- name: PASSWORD
//	  value: …
//	password: string = "…"
//	password: &anchor …
func (f *finder) isPassingWord(b []byte, i, j int) bool {
	s, w := &f.sep, b[i:j]
	if f.ask == nothing || f.ask >= forScheme || s.pipe || s.element {
		return false
	}
	if (len(w) > 2 || s.amp) && s.colons == 1 && s.eq == 0 && s.lines == 0 {
		return s.opened == 0 &&
			(s.amp && (b[i-1] == '&' || b[i-1] == '\'') || len(w) <= 6 && typeWords.has(bytes.ToLower(w)))
	}
	if len(w) <= 2 && s.opened == 0 && s.separatesValue() && j < len(b) && classes[b[j]]&quote != 0 { // b"…", r'…'
		return true
	}
	if len(w) > 6 || s.eq+s.colons > 0 {
		return false
	}
	low := string(bytes.ToLower(w))
	return low == "value" || s.lines == 0 && !s.comma &&
		(betweenWords.has([]byte(low)) || s.call == '(' && low == "return") ||
		f.ask == forSecret && len(w) == 1 && classes[w[0]]&digit != 0 && s.n == 1 // Cisco: password 7 …
}

// skipPassing skips a word for which passing is true.
func (f *finder) skipPassing(w []byte) {
	f.sep.n += uint16(len(w))
	switch {
	case f.sep.colons > 0 && (len(w) > 2 || f.sep.amp):
		f.sep.typed = true
	case len(w) == len("value") && string(bytes.ToLower(w)) == "value":
		f.sep = separator{valued: true}
	}
}

// lineBefore returns the part of the line before i, at most lineLook bytes.
func lineBefore(b []byte, i int) []byte {
	from := max(0, i-lineLook)
	if n := bytes.LastIndexByte(b[from:i], '\n'); n >= 0 {
		from += n + 1
	}
	return b[from:i]
}
