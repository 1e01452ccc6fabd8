package redact

import (
	"slices"
	"strings"
)

// bucket holds patterns sorted by text. One search finds all patterns that are a prefix of a text, however many there
// are: the nearest pattern that does not sort after the text, and the prefixes of that pattern.
type bucket []*node

type node struct {
	text string
	pattern
	same   *node // the next pattern with this text; they differ in the bits of the next character
	parent *node // the longest other text that is a prefix of this one
}

func (k bucket) addPattern(p pattern) bucket {
	text := p.lead + p.core
	n := &node{text: text, pattern: p}
	i, there := k.searchText([]byte(text))
	if there {
		at := k[i]
		for at.same != nil {
			at = at.same
		}
		at.same = n
		return k
	}
	if i > 0 {
		n.parent = k[i-1].longestPrefix([]byte(text))
	}
	for _, m := range k[i:] {
		if !strings.HasPrefix(m.text, text) {
			break
		}
		if m.parent == n.parent {
			m.parent = n
		}
	}
	return slices.Insert(k, i, n)
}

// searchText returns the index of the first text that does not sort before b, and whether it equals b.
func (k bucket) searchText(b []byte) (i int, there bool) {
	low, high := 0, len(k)
	for low < high {
		if mid := (low + high) / 2; k[mid].text < string(b) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < len(k) && k[low].text == string(b)
}

// longestPrefix returns the node with the longest text that is a prefix of b: n or one of its ancestors. No text that sorts
// between n and b may be a prefix of b.
func (n *node) longestPrefix(b []byte) *node {
	common := 0
	for most := min(len(b), len(n.text)); common < most && b[common] == n.text[common]; common++ {
	}
	for n != nil && len(n.text) > common {
		n = n.parent
	}
	return n
}

// longestMatch returns the length of the longest pattern that is a prefix of b, or zero, and whether more bytes could change the
// result.
func (k bucket) longestMatch(b []byte) (n int, category string, open bool) {
	if len(k) == 0 {
		return 0, "", false
	}
	i, there := k.searchText(b)
	behind := i + b2i(there)
	open = behind < len(k) && len(k[behind].text) > len(b) && k[behind].text[:len(b)] == string(b)
	if behind == 0 {
		return 0, "", open
	}
	for p := k[behind-1].longestPrefix(b); p != nil; p = p.same {
		m, more := p.matchStart(b)
		open = open || more
		if m > n {
			n, category = m, p.category
		}
	}
	return n, category, open
}
