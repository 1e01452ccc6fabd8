package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// maxName bounds a tool's name in bytes. Model interfaces take 64, of which agents spend some on the
// server's name ("mcp__bailey__").
const maxName = 48

// names gives every capability the name under which an agent sees it, and depends on the set of ids
// alone, not on its order. A name stands for one capability: if hashes should ever collide too, none of
// the colliding ones gets a name.
func names(ids []bailey.CapabilityID) map[string]bailey.CapabilityID {
	want := map[bailey.CapabilityID]string{}
	for _, id := range ids {
		if want[id] = plain(id); want[id] == "" || len(want[id]) > maxName {
			want[id] = hashed(id)
		}
	}
	for {
		owners := map[string]int{}
		for _, n := range want {
			owners[n]++
		}
		changed := false
		for id, n := range want {
			if owners[n] > 1 && n != hashed(id) {
				want[id], changed = hashed(id), true
			}
		}
		if changed {
			continue
		}
		out := map[string]bailey.CapabilityID{}
		for id, n := range want {
			if owners[n] == 1 {
				out[n] = id
			}
		}
		return out
	}
}

// plain replaces what a tool name may not hold.
func plain(id bailey.CapabilityID) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, string(id))
}

// hashed is a name that no other capability has.
func hashed(id bailey.CapabilityID) string {
	const digits = 10
	sum := sha256.Sum256([]byte(id))
	p := plain(id)
	return p[:min(len(p), maxName-1-digits)] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// guess says what an agent may have meant by a name that is not listed: a capability that it may not
// see has a receipt and a reason of its own. It is never one that is listed, under another name.
func guess(name string, listed map[string]bailey.CapabilityID) bailey.CapabilityID {
	id := bailey.CapabilityID(strings.Replace(name, "_", ".", 1))
	if strings.Contains(name, ".") {
		id = bailey.CapabilityID(name)
	}
	for _, l := range listed {
		if l == id && string(id) != name {
			return bailey.CapabilityID(printable(name, 128))
		}
	}
	return bailey.CapabilityID(printable(string(id), 128))
}

// printable makes what a client says of itself fit for a receipt and a terminal: other characters are
// replaced, never dropped, and what is cut ends in an ellipsis, so that the result cannot pass for
// something else. n is in bytes and at least 3.
func printable(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
		if b.Len() > n {
			break
		}
	}
	out := b.String()
	if len(out) <= n {
		return out
	}
	cut := n - len("…")
	for cut > 0 && !utf8.RuneStart(out[cut]) {
		cut--
	}
	return out[:cut] + "…"
}
