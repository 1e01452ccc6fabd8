package redact

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

// ipv4 finds addresses in the word b[i:j]. Versions also have four parts, see [versionLike].
func ipv4(b []byte, i, j int, add func(span)) {
	before := 0 // end of the last address
	for p := i; p < j; p++ {
		if classes[b[p]]&digit == 0 {
			continue
		}
		if p == i || classes[b[p-1]]&(alnum_|dot|joint) == 0 || p-1 == before {
			if stop, a := parseIPv4(b[:j], p, '.'); stop > 0 && isInformative(a) &&
				(isAddressEnd(b, stop, j) && !versionLike(b, i, p, stop, a) || addressStartsName(b, i, p, stop, j, a)) {
				add(span{p, stop, IPv4})
				before = stop
			}
		} else if stop := within4(b, i, p, j); stop > 0 {
			add(span{p, stop, IPv4})
			before = stop
		}
		p = runEnd(b[:j], p, alnum_|dot) - 1
	}
}

// parseIPv4 parses four numbers up to 255 without leading zeros, joined by sign. It returns the end, or zero if there
// is no match.
func parseIPv4(b []byte, p int, sign byte) (stop int, a [4]byte) {
	for n := range a {
		from, v := p, 0
		for p < len(b) && classes[b[p]]&digit != 0 && p-from < 3 {
			v = v*10 + int(b[p]-'0')
			p++
		}
		if p == from || v > 255 || b[from] == '0' && p-from > 1 || p < len(b) && classes[b[p]]&digit != 0 {
			return 0, a
		}
		a[n] = byte(v)
		if n < 3 {
			if p == len(b) || b[p] != sign {
				return 0, a
			}
			p++
		}
	}
	return p, a
}

// isInformative reports whether an address is informative. Loopback, the unspecified address and masks are the same on
// every machine.
func isInformative(a [4]byte) bool { return a[0] != 0 && a[0] != 127 && a[0] != 255 }

// isAddressEnd reports whether the text at stop does not continue the name, unlike in 1.2.3.4-5 or 1.2.3.4rc.
func isAddressEnd(b []byte, stop, j int) bool {
	if stop >= j {
		return true
	}
	if c := b[stop]; c == '-' {
		return stop+8 <= j && bytes.Count(b[stop+1:runEnd(b[:j], stop+1, digit|dot)], []byte(".")) == 3 // a range
	} else if c == '.' {
		return stop+1 == j
	} else {
		return classes[c]&alnum_ == 0 && c != '_' && c != '+' && c != '~'
	}
}

// networks are words that precede an address; versions are words that precede a version.
var (
	networks = vocabulary{text: `nameserver from to inet host hostname ip addr address server client peer via src dst source destination gateway gw route
		listen listening bind bound connect connected connecting connection remote local upstream at on ping proxy dns node by for and`}
	versions = vocabulary{text: "version ver v release build firmware driver revision appversion fileversion productversion section sections chapter clause figure oid"}
)

// versionLike reports whether the text is more likely a version: after a product name and a slash, after a word such as
// "version", or with small numbers if no word refers to a network.
func versionLike(b []byte, i, p, stop int, a [4]byte) bool {
	if p-i >= 2 && b[p-1] == '/' && classes[b[p-2]]&alnum_ != 0 && !isSurelyAddress(a) {
		return stop >= len(b) || b[stop] != ':' && b[stop] != '/'
	}
	if versionWord(b, p) {
		return true
	}
	if a[0] >= 10 || slices.Max(a[:]) >= 100 {
		return false
	}
	m := wordBefore(b, p)
	if networks.has(m.text[:m.n]) || stop < len(b) && (b[stop] == ':' || b[stop] == '/') {
		return false
	}
	return p > 0 && classes[b[p-1]]&blank != 0 && m.n > 0
}

// versionWord reports whether the word before p announces a version.
func versionWord(b []byte, p int) bool {
	m := wordBefore(b, p)
	return versions.has(m.text[:m.n]) || versions.has(m.partAt(m.parts-1))
}

// wordBefore returns the word before p on its line, if at most four signs separate them.
func wordBefore(b []byte, p int) parsedName {
	l := lineBefore(b, p)
	n := len(l)
	for n > 0 && len(l)-n < 4 && classes[l[n-1]]&alnum_ == 0 {
		n--
	}
	from := n
	for from > 0 && classes[l[from-1]]&(alnum_|joint) != 0 {
		from--
	}
	return parseName(l[from:n])
}

// maxIPv6 is one more than the length of the longest text form of an address (RFC 4291, section 2.2).
const maxIPv6 = 46

// ipv6 finds an address that begins at i. Fingerprints, MAC addresses and times consist of pairs joined by colons, so
// an address must have a group of three or more, or a gap.
func ipv6(b []byte, i int, final bool) (end int, open bool) {
	if i > 0 && (classes[b[i-1]]&(alnum_|joint|dot) != 0 || b[i-1] == ':') {
		return 0, false
	}
	j := i
	for j < len(b) && j-i < maxIPv6 && (hexDigit(b[j]) || b[j] == ':' || b[j] == '.') {
		j++
	}
	if j == len(b) && !final {
		return 0, true
	}
	if j < len(b) && classes[b[j]]&(alnum_|joint) != 0 {
		return 0, false
	}
	text := strings.TrimRight(string(b[i:j]), ".")
	if strings.HasSuffix(text, ":") && !strings.HasSuffix(text, "::") {
		text = text[:len(text)-1]
	}
	gap := strings.Contains(text, "::")
	if !gap && strings.Count(text, ":") < 6 || !strings.ContainsAny(text, "0123456789") {
		return 0, false
	}
	if !gap && !slices.ContainsFunc(strings.Split(text, ":"), func(g string) bool { return len(g) > 2 }) {
		return 0, false
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsLoopback() || a.IsUnspecified() || a.Unmap().Is4() && !isInformative(a.Unmap().As4()) {
		return 0, false
	}
	return i + len(text), false
}

// isSurelyAddress reports whether an address is unlikely to be a version: it is private (RFC 1918) or has no small
// number.
func isSurelyAddress(a [4]byte) bool {
	return a[0] == 10 || a[0] == 172 && a[1]&0xf0 == 16 || a[0] == 192 && a[1] == 168 || slices.Min(a[:]) >= 10
}

// reverseDomains lists domains whose names contain addresses (RFC 1035, section 3.5, and services that answer with the
// address in the name).
var reverseDomains = []string{".in-addr.arpa", ".nip.io", ".sslip.io", ".xip.io"}

// archives lists the suffixes of files that are named after a product version.
var archives = []string{".deb", ".rpm", ".apk", ".jar", ".whl", ".gz", ".tgz", ".xz", ".bz2", ".zst", ".zip", ".so",
	".dll", ".exe", ".msi", ".dmg", ".nupkg", ".gem"}

// releaseTags lists prefixes of the text that follows a version and a dash.
var releaseTags = []string{"rc", "beta", "alpha", "pre", "dev", "snapshot", "release", "generic", "build", "post",
	"ubuntu", "deb", "el", "fc"}

// addressStartsName reports whether the address b[p:stop] is the start of a name in the word b[i:j]: 10.20.30.40.conf,
// 10.20.30.40-backup.tar.
func addressStartsName(b []byte, i, p, stop, j int, a [4]byte) bool {
	rest := bytes.ToLower(b[stop:min(j, stop+maxName)])
	if a[3] != 127 && slices.ContainsFunc(reverseDomains, func(r string) bool { return bytes.HasPrefix(rest, []byte(r)) }) {
		return true
	}
	if !isSurelyAddress(a) || len(rest) < 2 || classes[rest[0]]&(dot|joint) == 0 || versionWord(b, p) {
		return false
	}
	if rest[0] == '_' {
		return true
	}
	return classes[rest[1]]&letter != 0 &&
		!slices.ContainsFunc(releaseTags, func(w string) bool { return bytes.HasPrefix(rest[1:], []byte(w)) })
}

// within4 returns the end of an address that begins at p after other characters of a name, or zero: web_10.20.30.40, or
// ip-10-20-30-40 as cloud providers name machines.
func within4(b []byte, i, p, j int) int {
	if b[p-1] == '_' {
		stop, a := parseIPv4(b[:j], p, '.')
		if stop == 0 || !isSurelyAddress(a) || !isInformative(a) || !isAddressEnd(b, stop, j) &&
			!addressStartsName(b, i, p, stop, j, a) {
			return 0
		}
		if slices.ContainsFunc(archives, func(e string) bool { return bytes.HasSuffix(b[i:j], []byte(e)) }) {
			return 0
		}
		return stop
	}
	if at := p - len("ip-"); at >= i && string(b[at:p]) == "ip-" && (at == i || classes[b[at-1]]&alnum_ == 0) {
		stop, a := parseIPv4(b[:j], p, '-')
		if stop > 0 && isInformative(a) && (stop == j || b[stop] == '.' || b[stop] == '/') {
			return stop
		}
	}
	return 0
}
