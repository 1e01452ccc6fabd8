package bailey

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseEndpoint reads host:port as a manifest or a profile has it, without flags: a name, "*." before a name of two parts or
// more, or an address. What has a second spelling comes out in its one.
func ParseEndpoint(s string) (Endpoint, error) {
	const hint = "write example.com:443, *.example.com:443 or an address and a port"
	bad := func(why string) (Endpoint, error) {
		return Endpoint{}, &Error{Kind: Invalid, Message: "egress " + brief(s) + ": " + why, Hint: hint}
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

// maxHostPort is longer than any name with its port, in bytes.
const maxHostPort = 300

// SplitPort cuts host:port at the last colon; brackets stay. What is neither a port nor a host in any spelling is no business
// of a parser further on.
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

// parsePort wants digits and no other spelling of a number.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// ParseHost reads a host without brackets: a name, which comes out in lower case and without its last dot, or an address; or
// says why it is neither. An address in a second spelling is refused, not translated: two readers that disagree about it are
// how an allowlist is walked around.
func ParseHost(s string) (name string, addr netip.Addr, why string) {
	if addr, err := netip.ParseAddr(s); err == nil {
		// A zone, a mapped address, capital letters, zeros: all of them have another spelling, which is the one.
		if addr.Zone() != "" || addr.Is4In6() || addr.String() != s {
			return "", netip.Addr{}, "it is an address in another spelling than " + addr.WithZone("").Unmap().String()
		}
		return "", addr, ""
	}
	name, why = hostName(s)
	return name, netip.Addr{}, why
}

// maxName and maxLabel are those of RFC 1035, section 2.3.4, in bytes of text.
const maxName, maxLabel = 253, 63

// hostName is a host's name in its one spelling, or why it is none. Letters beyond ASCII are not mapped: IDNA has
// several editions that disagree, so a name comes in its encoded form (xn--), which is what clients send anyway.
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

// endsInNumber is the URL standard's test for what some client takes for an IPv4 address: 2130706433, 127.1,
// 0x7f.0.0.1, 0177.0.0.1. No domain ends so.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if rest, hex := strings.CutPrefix(last, "0x"); hex {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// brief is foreign text for a person: short, and nothing in it acts on a terminal.
func brief(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + fmt.Sprintf(" (and %d bytes more)", len(s)-most)
	}
	return strconv.QuoteToASCII(s)
}
