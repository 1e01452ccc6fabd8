package egress

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
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
		return Target{}, malformedRefusal(s, "it is not in the form host:port")
	}
	bracketed := strings.HasPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(host[1:], "]")
	}
	t, ref := targetOf(host, port)
	if ref == nil && bracketed != t.addr.Is6() {
		return Target{}, malformedRefusal(s, "brackets are required for IPv6 addresses, and allowed for nothing else")
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

// Endpoint is one entry of an allowlist.
type Endpoint = bailey.Endpoint

// ParseEndpoint parses host:port as in a manifest or a profile. It returns an error if such an entry could never take
// effect.
func ParseEndpoint(s string) (Endpoint, error) {
	e, err := bailey.ParseEndpoint(s)
	if err == nil {
		_, err = newEntry(e)
	}
	return e, err
}

// Allowlist contains every endpoint that may be reached. It does not change after [New].
type Allowlist struct{ entries []*entry }

// entry is an endpoint in its canonical spelling.
type entry struct {
	Endpoint
	Target           // name is without "*."
	wild   bool      // matches every name below it, but not the name itself
	inject []*secret // secrets that are injected for it
}

func (e *entry) String() string {
	if e.wild {
		return "*." + e.Target.String()
	}
	return e.Target.String()
}

// hasOpenedTLS reports whether the proxy terminates TLS for this endpoint, which this package calls opened TLS.
func (e *entry) hasOpenedTLS() bool { return e.Inspect || len(e.inject) > 0 }

// NewAllowlist returns an error if an entry could never take effect, or if two entries name the same endpoint.
func NewAllowlist(all []Endpoint) (*Allowlist, error) {
	l := &Allowlist{}
	for _, one := range all {
		e, err := newEntry(one)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(l.entries, func(o *entry) bool { return o.String() == e.String() }) {
			return nil, bailey.Conflict.New("egress "+e.String()+" is there twice", "remove one of them")
		}
		l.entries = append(l.entries, e)
	}
	return l, nil
}

func newEntry(one Endpoint) (*entry, error) {
	e := &entry{Endpoint: one}
	host, wild := strings.CutPrefix(one.Host, "*.")
	if one.Port < 1 || one.Port > 65535 {
		return nil, invalidError(fmt.Sprintf("egress %s: %d is not a port", quoteShort(one.Host), one.Port),
			"use a port from 1 to 65535")
	}
	t, ref := targetOf(host, uint16(one.Port))
	if ref != nil {
		return nil, invalidError("egress "+quoteShort(one.Host)+": "+ref.why,
			"write example.com:443, *.example.com:443 or an address and a port")
	}
	e.Target, e.wild = t, wild
	return e, e.checkEntry()
}

// checkEntry returns an error if the entry can be refused without a request.
func (e *entry) checkEntry() error {
	what, never := "", false
	if e.addr.IsValid() {
		what, never = addressClass(e.addr)
	}
	switch {
	case e.wild && (e.addr.IsValid() || !strings.Contains(e.name, ".")):
		return invalidError("egress "+e.String()+" is too wide",
			"name at least two parts after *., for example *.example.com")
	case never || slices.Contains(addresses().names, e.name):
		return invalidError("egress "+e.String()+" is an address of a cloud metadata service, which is never allowed",
			"leave it out")
	case what != "" && !e.Private:
		return invalidError(fmt.Sprintf("egress %s is %s", e, what),
			privateHint(e))
	case e.Plain && e.Inspect:
		return invalidError("egress "+e.String()+" is both plain and inspected", "remove one of them")
	}
	return nil
}

func (l *Allowlist) hasOpenedTLS() bool { return slices.ContainsFunc(l.entries, (*entry).hasOpenedTLS) }

// Verdict is the decision about a target. The zero Verdict refuses.
type Verdict struct {
	entry   *entry
	refusal *Refusal
}

// Allowed reports whether the name may be resolved and connected to.
func (v Verdict) Allowed() bool { return v.entry != nil && v.refusal == nil }

// Refusal returns the reason, or nil if the target is allowed.
func (v Verdict) Refusal() *Refusal {
	if v.refusal == nil && v.entry == nil {
		return &Refusal{why: "egress was not decided", status: http.StatusForbidden, reply: socksDenied}
	}
	return v.refusal
}

// Decide makes the only egress decision, for every protocol. It does no I/O. If the target is allowed, its name is
// resolved and the addresses are judged afterwards. If it is refused, its name is not resolved.
func (l *Allowlist) Decide(t Target) Verdict {
	if slices.Contains(addresses().names, t.name) {
		return Verdict{refusal: deniedRefusal("egress to "+t.String()+
			" is never allowed: it is a cloud metadata service", "lend the tool a credential instead")}
	}
	e := l.findEntry(t)
	if e == nil {
		return Verdict{refusal: l.unlistedRefusal(t)}
	}
	if t.addr.IsValid() {
		if ref := judgeAddress(t, e, t.addr); ref != nil {
			return Verdict{refusal: ref}
		}
	}
	return Verdict{entry: e}
}

// findEntry returns the entry that matches t, or nil. An exact name takes precedence over a wildcard, and a longer
// wildcard over a shorter one.
func (l *Allowlist) findEntry(t Target) *entry {
	var best *entry
	for _, e := range l.entries {
		switch {
		case e.port != t.port || e.addr != t.addr:
		case !e.wild && e.name == t.name:
			return e
		case e.wild && strings.HasSuffix(t.name, "."+e.name) && (best == nil || len(e.name) > len(best.name)):
			best = e
		}
	}
	return best
}

func (l *Allowlist) unlistedRefusal(t Target) *Refusal {
	const most = 8
	var names []string
	for _, e := range l.entries {
		names = append(names, e.String())
	}
	allowed := "nothing"
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(l.entries)-most))
	}
	if len(names) > 0 {
		allowed = strings.Join(names, ", ")
	}
	return deniedRefusal("egress to "+t.String()+" is not allowed; allowed: "+allowed,
		"the egress entry "+strconv.Quote(t.String())+" would allow it")
}

// judgeAddress refuses the address a if it is not public and the entry is not private, or if it is a metadata address.
// The target has resolved to a, or was requested as a.
func judgeAddress(t Target, e *entry, a netip.Addr) *Refusal {
	what, never := addressClass(a)
	switch {
	case never:
		return deniedRefusal(fmt.Sprintf("egress to %s is never allowed: its address %s is %s", t, a, what),
			"lend the tool a credential instead")
	case what != "" && !e.Private:
		return deniedRefusal(fmt.Sprintf("egress to %s is not allowed: its address %s is %s", t, a, what),
			privateHint(e))
	}
	return nil
}

// privateHint returns the lines of the settings that allow private addresses.
func privateHint(e *entry) string {
	return "set private: true in settings.yaml, as network: {endpoints: [{to: " + strconv.Quote(e.String()) +
		", private: true}]}, and run bailey init --apply"
}

// Refusal is the reason why a target was refused, as text for an agent.
type Refusal struct {
	why, hint string
	status    int  // of HTTP
	reply     byte // of SOCKS5
	kind      string
}

// String returns one line.
func (r *Refusal) String() string {
	if r.hint == "" {
		return r.why
	}
	return r.why + "; " + r.hint
}

// Err returns the refusal as an error.
func (r *Refusal) Err() error {
	kind := bailey.Denied
	if r.kind == KindFailed {
		kind = bailey.Unavailable
	}
	return kind.New(r.why, r.hint)
}

func deniedRefusal(why, hint string) *Refusal {
	return &Refusal{why: why, hint: hint, status: http.StatusForbidden, reply: socksDenied, kind: KindRefused}
}

func malformedRefusal(s, why string) *Refusal {
	return &Refusal{why: "egress to " + quoteShort(s) + " is not allowed: " + why,
		hint:   "request name:port, for example example.com:443",
		status: http.StatusBadRequest, reply: socksDenied, kind: KindRefused}
}

func unreachableRefusal(t Target, why string) *Refusal {
	return &Refusal{why: "egress to " + t.String() + " is allowed, but failed: " + why,
		status: http.StatusBadGateway, reply: socksUnreachable, kind: KindFailed}
}
