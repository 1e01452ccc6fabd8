package bailey

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseEndpoint parses host:port from a manifest or a profile, without flags. The host is a name, "*." before a name of
// at least two parts, or an address. The result is in canonical spelling.
func ParseEndpoint(s string) (Endpoint, error) {
	const hint = "write example.com:443, *.example.com:443 or an address and a port"
	bad := func(why string) (Endpoint, error) {
		return Endpoint{}, &Error{Kind: Invalid, Message: "egress " + quoteTruncated(s) + ": " + why, Hint: hint}
	}
	host, port, ok := SplitPort(s)
	if !ok {
		return bad("it is not host:port")
	}
	host, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(host, "]")
	}
	host, wild := strings.CutPrefix(host, "*.")
	name, addr, why := ParseHost(host)
	switch {
	case why != "":
		return bad(why)
	case bracketed != addr.Is6():
		return bad("brackets are for addresses of version 6, and those need them")
	case wild && !strings.Contains(name, "."):
		return bad("it is too wide: name at least two parts behind *.")
	case wild:
		name = "*." + name
	case addr.IsValid():
		name = addr.String()
	}
	return Endpoint{Host: name, Port: int(port)}, nil
}

// maxHostPort is longer than any valid name with a port, in bytes.
const maxHostPort = 300

// SplitPort splits host:port at the last colon and keeps brackets. If the port is invalid or the text cannot contain a
// host, ok is false, so later parsers never see it.
func SplitPort(s string) (host string, port uint16, ok bool) {
	if len(s) > maxHostPort {
		return "", 0, false
	}
	i := strings.LastIndexByte(s, ':')
	if i < 1 || strings.HasPrefix(s, "[") != (s[i-1] == ']') {
		return "", 0, false
	}
	port, ok = parsePort(s[i+1:])
	return s[:i], port, ok
}

// parsePort accepts only decimal digits in canonical form.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// ParseHost parses a host without brackets. It returns a name in lower case without the final dot, or an address, or
// the reason why s is neither. It refuses an address in a non-canonical spelling instead of converting it: if two
// parsers interpret an address differently, an attacker can bypass an allowlist.
func ParseHost(s string) (name string, addr netip.Addr, why string) {
	if addr, err := netip.ParseAddr(s); err == nil {
		// Zones, mapped addresses, capital letters and extra zeros are not canonical.
		if addr.Zone() != "" || addr.Is4In6() || addr.String() != s {
			return "", netip.Addr{}, "it is an address in another spelling than " + addr.WithZone("").Unmap().String()
		}
		return "", addr, ""
	}
	name, why = hostName(s)
	return name, netip.Addr{}, why
}

// maxName and maxLabel are the limits of RFC 1035, section 2.3.4, in bytes of text.
const maxName, maxLabel = 253, 63

// hostName returns the canonical form of a host name, or the reason why it is invalid. It does not convert non-ASCII
// letters, because the editions of IDNA disagree. Such a name must be in encoded form (xn--), which clients send
// anyway.
func hostName(host string) (name, why string) {
	name = strings.TrimSuffix(host, ".")
	switch {
	case name == "":
		return "", "it names no host"
	case len(name) > maxName:
		return "", "its name is too long"
	}
	for _, label := range strings.Split(name, ".") {
		if why := labelFault(label); why != "" {
			return "", why
		}
	}
	if name = strings.ToLower(name); endsInNumber(name) {
		return "", "it is an address in a spelling of its own"
	}
	return name, ""
}

func labelFault(label string) string {
	switch {
	case label == "" || len(label) > maxLabel:
		return "its name has a part of no length, or of over 63 letters"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a part of its name begins or ends with a hyphen"
	}
	for _, b := range []byte(label) {
		switch {
		case b >= 0x80:
			return "its name has letters beyond ASCII: write it encoded, as xn--"
		case !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'):
			return "its name has a character that no name has"
		}
	}
	return ""
}

// endsInNumber implements the test of the URL standard for text that some clients parse as an IPv4 address, for example
// 2130706433, 127.1, 0x7f.0.0.1 or 0177.0.0.1. No domain name ends in a number.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if rest, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// quoteTruncated makes untrusted text safe for display: it is shortened and escaped, so it cannot control a terminal.
func quoteTruncated(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + fmt.Sprintf(" (and %d bytes more)", len(s)-most)
	}
	return strconv.QuoteToASCII(s)
}
