package redact

import (
	"bytes"
	"slices"
)

// isSurelyAddress reports whether an address is unlikely to be a version: it is private (RFC 1918) or has no small number.
func isSurelyAddress(a [4]byte) bool {
	return a[0] == 10 || a[0] == 172 && a[1]&0xf0 == 16 || a[0] == 192 && a[1] == 168 || slices.Min(a[:]) >= 10
}

// reverseDomains lists domains whose names contain addresses (RFC 1035, section 3.5, and services that answer with the address
// in the name).
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
