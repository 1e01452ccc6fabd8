package redact

import (
	"slices"
	"strings"
)

// bucket holds patterns sorted by text. One search finds those that a text begins with, however many there are: the
// nearest that is not behind it, and what that begins with itself.
type bucket []*node

type node struct {
	text string
	pattern
	same   *node // the next pattern of this text, which differs in the bits of the character behind it
	parent *node // the longest other text that this one begins with
}

func (k bucket) add(p pattern) bucket {
	text := p.lead + p.core
	n := &node{text: text, pattern: p}
	i, there := k.search([]byte(text))
	if there {
		at := k[i]
		for at.same != nil {
			at = at.same
		}
		at.same = n
		return k
	}
	if i > 0 {
		n.parent = k[i-1].within([]byte(text))
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

// search returns the place of the first text that is not before b, and whether it is b.
func (k bucket) search(b []byte) (i int, there bool) {
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

// within returns the node of the longest text that b begins with: n, or one that n begins with. Nothing sorted between
// n and b may have such a text.
func (n *node) within(b []byte) *node {
	common := 0
	for most := min(len(b), len(n.text)); common < most && b[common] == n.text[common]; common++ {
	}
	for n != nil && len(n.text) > common {
		n = n.parent
	}
	return n
}

// at returns the length of the longest pattern that b begins with, zero for none, and whether more bytes could make it
// another one.
func (k bucket) at(b []byte) (n int, category string, open bool) {
	if len(k) == 0 {
		return 0, "", false
	}
	i, there := k.search(b)
	behind := i + b2i(there)
	open = behind < len(k) && len(k[behind].text) > len(b) && k[behind].text[:len(b)] == string(b)
	if behind == 0 {
		return 0, "", open
	}
	for p := k[behind-1].within(b); p != nil; p = p.same {
		m, more := p.match(b)
		open = open || more
		if m > n {
			n, category = m, p.category
		}
	}
	return n, category, open
}
