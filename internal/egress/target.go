package egress

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"bailey"
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

// ParseTarget reads host:port as it comes from a cage. What has a second spelling is refused, not translated: two
// readers that disagree about a name are how an allowlist is walked around.
func ParseTarget(s string) (Target, *Refusal) {
	host, port, ok := bailey.SplitPort(s)
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

// targetOf is a target of a host that stands by itself, as SOCKS has it.
func targetOf(host string, port uint16) (Target, *Refusal) {
	name, addr, why := bailey.ParseHost(host)
	if why != "" {
		return Target{}, malformed(host, why)
	}
	return Target{name: name, addr: addr, port: port}, nil
}

// shown is text from a cage for a person: short, and nothing in it acts on a terminal.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + fmt.Sprintf(" (and %d bytes more)", len(s)-most)
	}
	return strconv.QuoteToASCII(s)
}
