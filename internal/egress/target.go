package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"bailey"
)

// Target is a destination: a name or an address, never both, and a port. Only [ParseTarget] and targetOf make one, so
// each target has one spelling.
type Target struct {
	name string // lower case, without the last dot
	addr netip.Addr
	port uint16
}

func (t Target) hostText() string {
	if t.addr.IsValid() {
		return t.addr.String()
	}
	return t.name
}

// String returns host:port, with an IPv6 address in brackets.
func (t Target) String() string { return net.JoinHostPort(t.hostText(), strconv.Itoa(int(t.port))) }

// ParseTarget parses host:port from a cage. It refuses any second spelling of a target and does not translate it: an
// allowlist can be bypassed if two parsers disagree about a name.
func ParseTarget(s string) (Target, *Refusal) {
	host, port, ok := bailey.SplitPort(s)
	if !ok {
		return Target{}, malformedRefusal(s, "it is not host:port")
	}
	bracketed := strings.HasPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(host[1:], "]")
	}
	t, ref := targetOf(host, port)
	if ref == nil && bracketed != t.addr.Is6() {
		return Target{}, malformedRefusal(s, "brackets are for addresses of version 6, and those need them")
	}
	return t, ref
}

// targetOf returns the target for a host that comes separately from the port, as in SOCKS.
func targetOf(host string, port uint16) (Target, *Refusal) {
	name, addr, why := bailey.ParseHost(host)
	if why != "" {
		return Target{}, malformedRefusal(host, why)
	}
	return Target{name: name, addr: addr, port: port}, nil
}

// quoteShort returns text from a cage in a form for a person: short, and harmless to a terminal.
func quoteShort(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + fmt.Sprintf(" (and %d bytes more)", len(s)-most)
	}
	return strconv.QuoteToASCII(s)
}
