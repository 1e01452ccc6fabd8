package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// maxName limits the name of a tool in bytes. Model interfaces allow 64, and agents use some of them for the name of
// the server ("mcp__bailey__").
const maxName = 48

// assignNames assigns each capability the name that agents see. The result depends only on the set of ids and not on its
// order. A name identifies one capability: if hashes collide, none of the affected capabilities gets a name.
func assignNames(ids []bailey.CapabilityID) map[string]bailey.CapabilityID {
	want := map[bailey.CapabilityID]string{}
	for _, id := range ids {
		if want[id] = sanitizeName(id); want[id] == "" || len(want[id]) > maxName {
			want[id] = hashedName(id)
		}
	}
	for {
		owners := map[string]int{}
		for _, n := range want {
			owners[n]++
		}
		changed := false
		for id, n := range want {
			if owners[n] > 1 && n != hashedName(id) {
				want[id], changed = hashedName(id), true
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

// sanitizeName replaces characters that a tool name must not contain.
func sanitizeName(id bailey.CapabilityID) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, string(id))
}

// hashedName returns a name with a hash of the id.
func hashedName(id bailey.CapabilityID) string {
	const digits = 10
	sum := sha256.Sum256([]byte(id))
	p := sanitizeName(id)
	return p[:min(len(p), maxName-1-digits)] + "-" + hex.EncodeToString(sum[:])[:digits]
}

// guessCapability returns the capability that an agent may have meant by an unlisted name, so that a call of a hidden capability
// gets a receipt and a reason. It never returns a listed capability under another name.
func guessCapability(name string, listed map[string]bailey.CapabilityID) bailey.CapabilityID {
	id := bailey.CapabilityID(strings.Replace(name, "_", ".", 1))
	if strings.Contains(name, ".") {
		id = bailey.CapabilityID(name)
	}
	for _, l := range listed {
		if l == id && string(id) != name {
			return bailey.CapabilityID(printableText(name, 128))
		}
	}
	return bailey.CapabilityID(printableText(string(id), 128))
}

// printableText makes the self-description of a client safe for a receipt and a terminal. Unprintable characters are
// replaced and not removed, and a shortened text ends in an ellipsis, so the result cannot be mistaken for another
// text. n is in bytes and must be at least 3.
func printableText(s string, n int) string {
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
