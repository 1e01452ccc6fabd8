package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Target is a place that something wants to reach: a name or an address, never both, and a port. It is made by
// [ParseTarget] alone, so there is one spelling of each.
type Target struct {
	name string // lower case, without the last dot
	addr netip.Addr
	port uint16
}

func (t Target) host() string {
	if t.addr.IsValid() {
		return t.addr.String()
	}
	return t.name
}

// String is host:port, an address of version 6 in brackets.
func (t Target) String() string { return net.JoinHostPort(t.host(), strconv.Itoa(int(t.port))) }

// maxTarget is longer than any name with its port, in bytes.
const maxTarget = 300

// ParseTarget reads host:port as it comes from a cage. What has a second spelling is refused, not translated: two
// readers that disagree about a name are how an allowlist is walked around.
func ParseTarget(s string) (Target, *Refusal) {
	host, port, ok := splitPort(s)
	if !ok {
		return Target{}, malformed(s, "it is not host:port")
	}
	bracketed := strings.HasPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(host[1:], "]")
	}
	t, ref := targetOf(host, port)
	if ref == nil && bracketed != t.addr.Is6() {
		return Target{}, malformed(s, "brackets are for addresses of version 6, and those need them")
	}
	return t, ref
}

// splitPort cuts at the last colon. What is neither a port nor a host in any spelling is no business of a parser
// further on.
func splitPort(s string) (host string, port uint16, ok bool) {
	if len(s) > maxTarget {
		return "", 0, false
	}
	i := strings.LastIndexByte(s, ':')
	if i < 1 || strings.HasPrefix(s, "[") != (s[i-1] == ']') {
		return "", 0, false
	}
	port, ok = parsePort(s[i+1:])
	return s[:i], port, ok
}

// parsePort wants digits and no other spelling of a number.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// targetOf is a target of a host that stands by itself, as SOCKS has it.
func targetOf(host string, port uint16) (Target, *Refusal) {
	if addr, err := netip.ParseAddr(host); err == nil {
		// A zone, a mapped address, capital letters, zeros: all of them have another spelling, which is the one.
		if addr.Zone() != "" || addr.Is4In6() || addr.String() != host {
			return Target{}, malformed(host, "it is an address in another spelling than "+addr.WithZone("").Unmap().String())
		}
		return Target{addr: addr, port: port}, nil
	}
	name, why := normalName(host)
	if why != "" {
		return Target{}, malformed(host, why)
	}
	return Target{name: name, port: port}, nil
}

// maxName and maxLabel are those of RFC 1035, section 2.3.4, in bytes of text.
const maxName, maxLabel = 253, 63

// normalName is a host's name in its one spelling, or why it is none. Letters beyond ASCII are not mapped: IDNA has
// several editions that disagree, so a name comes in its encoded form (xn--), which is what clients send anyway.
func normalName(host string) (name, why string) {
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

// endsInNumber is the URL standard's test for what some client takes for an IPv4 address: 2130706433, 127.1,
// 0x7f.0.0.1, 0177.0.0.1. No domain ends so.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if rest, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// shown is text from a cage for a person: short, and nothing in it acts on a terminal.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + fmt.Sprintf(" (and %d bytes more)", len(s)-most)
	}
	return strconv.QuoteToASCII(s)
}
