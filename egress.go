package bailey

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Endpoint is an external destination that a tool may reach. The flags allow more kinds of addresses and protocols
// there, but no other destinations. A manifest names the destination; only the network settings of the operator can set
// flags.
type Endpoint struct {
	Host    string `json:"host"` // a name, "*." and a name, or an address
	Port    int    `json:"port"`
	Private bool   `json:"private,omitempty"` // non-public addresses are allowed, except metadata services
	Plain   bool   `json:"plain,omitempty"`   // traffic need not be TLS and is not examined
	NoSNI   bool   `json:"noSNI,omitempty"`   // TLS may omit the server name
	ECH     bool   `json:"ech,omitempty"`     // TLS may encrypt the server name
	Inspect bool   `json:"inspect,omitempty"` // TLS is decrypted
}

// String returns host:port, with an IPv6 address in brackets. [Endpoint.Words] also has the flags.
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Words returns host:port and the flags, for display.
func (e Endpoint) Words() string {
	words := []string{e.String()}
	for _, f := range [...]struct {
		word string
		set  bool
	}{{"private", e.Private}, {"plain", e.Plain}, {"noSNI", e.NoSNI}, {"ech", e.ECH}, {"inspect", e.Inspect}} {
		if f.set {
			words = append(words, f.word)
		}
	}
	return strings.Join(words, " ")
}

// Network describes the network of a cage: sockets that listen inside the cage and are served outside. No packet leaves
// the cage, and no process of the tool runs between the two sides. Network contains only data and is part of the cage
// plan.
type Network struct {
	Endpoints []Endpoint // reachable endpoints, for explanations of the cage; sorted
	Listen    []Listen   // sockets, which [Way.Serve] serves in this order
	Hosts     []HostName // lines in the /etc/hosts of the cage
	Env       []string   // NAME=value: proxy and trust variables
	Trust     bool       // the cage gets the result of [Way.Trusted] at [TrustFile]
	API       *API       // the daemon behind the only socket, instead of endpoints; or nil
}

// TrustFile contains the certificate authorities that the tools in a cage with [Network.Trust] trust, in PEM.
const TrustFile = "/run/bailey/trust/authorities.pem"

// Listen is a socket inside the cage. Network is either tcp, with an address in 127.0.0.0/8 and a port, or unix, with a
// path below /run/bailey.
type Listen struct{ Network, Address string }

// HostName is a name and its address inside the cage.
type HostName struct{ Address, Name string }

// Way is the outer side of a [Network], for one run.
type Way interface {
	// Trusted returns the certificate authorities that the tool must trust, in PEM. The runner calls it once, before
	// Serve.
	Trusted() []byte
	// Serve accepts connections from the listeners of the cage, which must be in the planned order, until ctx ends. At
	// that time no process of the cage is alive. Serve closes the listeners. When it returns, all their connections are
	// closed.
	Serve(ctx context.Context, listeners []net.Listener) error
	// Report returns the activity. It is complete when Serve has returned.
	Report() EgressReport
}

// Injection is a secret that the cage sees only as a placeholder. The secret is sent only to these endpoints, in these
// parts of the request, over verified TLS.
type Injection struct {
	Name        string // for receipts
	Placeholder string
	Value       Secret
	To          []string // endpoints, as host:port
	Headers     []string // headers that may contain it, alone or within text; in Authorization also as Basic
	Query       []string // query parameters that may contain it
	Paths       []string // host:port/path: only requests at or below one of them may contain it; nil: all
	Sign        string   // [SignAWS]: the secret signs requests instead of being sent
}

// SignAWS is the way to sign of AWS, Signature Version 4. The placeholder is the id of the key, and the secret is a profile
// in the form of ~/.aws/credentials.
const SignAWS = "aws"

// TokensNpm is the form of an npmrc: a token for a registry is in a line of its own.
const TokensNpm = "npmrc"

// The kinds of an [EgressEvent].
const (
	EgressClosed  = "closed"  // an allowed connection has ended
	EgressRefused = "refused" // a connection or request was not allowed
	EgressMisused = "misused" // a placeholder was sent to a destination that must not get its secret
	EgressFailed  = "failed"  // a connection or request was allowed but failed
)

// EgressEvent is one event between a cage and the outside, for the receipt. Text from the cage is quoted.
type EgressEvent struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Via     string    `json:"via"`               // connect, http, socks, forward, tls, unix
	Target  string    `json:"target,omitempty"`  // host:port; for unix the request; "" if unknown
	Address string    `json:"address,omitempty"` // the connected address
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
	Up      int64     `json:"up,omitempty"`   // bytes out of the cage
	Down    int64     `json:"down,omitempty"` // bytes into the cage
}

// Words returns one line that an agent can act on.
func (e EgressEvent) Words() string {
	if e.Hint == "" {
		return e.Reason
	}
	return fmt.Sprintf("%s; %s", e.Reason, e.Hint)
}

// EgressTotals counts all events of a call, including those that the report omits.
type EgressTotals struct {
	Connections int64 `json:"connections"` // allowed connections
	Refused     int64 `json:"refused"`     // refused and misused
	Failed      int64 `json:"failed"`
	Up          int64 `json:"up"`
	Down        int64 `json:"down"`
	Untold      int64 `json:"untold"` // omitted events
}

// EgressReport describes the network activity of a call.
type EgressReport struct {
	EgressTotals
	Events []EgressEvent `json:"events,omitempty"` // in order of time
}

// Refusals returns one line for each refusal, without duplicates.
func (r EgressReport) Refusals() (lines []string) {
	for _, e := range r.Events {
		if e.Kind == EgressRefused || e.Kind == EgressMisused {
			if line := e.Words(); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// API is the unix socket of a daemon on this machine. A cage can send only the requests that the routes name.
type API struct {
	Socket string   `json:"socket"`         // the daemon: one of [Daemons]
	Path   string   `json:"path,omitempty"` // path of the socket on the host; not set by a manifest
	Allow  []string `json:"allow"`          // routes in the syntax of [ParseRoute]
}

// Daemons returns the supported daemons, sorted.
func Daemons() []string { return []string{"docker", "incus", "podman"} }

// String returns the name for policy and receipts: unix:docker, or unix:docker:changes if a route changes something. So
// a rule that permits queries permits no change.
func (a API) String() string {
	for _, text := range a.Allow {
		if r, err := ParseRoute(text); err == nil {
			if changes, _ := r.Changes(); changes {
				return "unix:" + a.Socket + ":changes"
			}
		}
	}
	return "unix:" + a.Socket
}

// Inside returns the path of the socket in the cage.
func (a API) Inside() string { return "/run/bailey/" + a.Socket + ".sock" }

// Route is one kind of request that a daemon may receive. The zero Route matches no request.
type Route struct {
	Method string
	Path   []string            // segments: a word, "{x}" for any one segment, "{x...}" for one or more
	Query  map[string][]string // allowed parameters; one with values must occur exactly once, with one of them
}

// Limits of a route, in bytes and segments.
const (
	maxRoute    = 512
	maxSegments = 16
)

// actions are the last segments of paths that no route may have: they copy files, run programs, or take over the
// connection.
var actions = []string{"archive", "attach", "build", "console", "exec", "export", "files", "get", "grpc", "healthcheck",
	"load", "resize", "session", "sftp", "wait", "ws"}

// Changes reports whether the request changes something at the daemon, and whether it may remove something.
func (r Route) Changes() (changes, removes bool) {
	removes = r.Method == "DELETE" || len(r.Path) > 0 && r.Path[len(r.Path)-1] == "prune"
	return removes || r.Method == "POST", removes
}

// ParseRoute parses a route such as "GET /containers/{id}/stats?stream=0&one-shot". Its method is GET, HEAD, POST or
// DELETE. A request never has a body.
func ParseRoute(s string) (Route, error) {
	bad := func(why string) (Route, error) {
		return Route{}, &Error{Kind: Invalid, Message: "route " + quoteTruncated(s) + ": " + why,
			Hint: `write "GET /containers/{id}/json?size"`}
	}
	method, target, _ := strings.Cut(s, " ")
	path, query, asks := strings.Cut(target, "?")
	switch {
	case len(s) > maxRoute:
		return bad(fmt.Sprintf("it has more than %d bytes", maxRoute))
	case !slices.Contains([]string{"GET", "HEAD", "POST", "DELETE"}, method):
		return bad("its method is none of GET, HEAD, POST and DELETE")
	case !strings.HasPrefix(path, "/"):
		return bad("its path does not begin with a slash")
	}
	r := Route{Method: method, Path: strings.Split(path[1:], "/"), Query: map[string][]string{}}
	if len(r.Path) > maxSegments {
		return bad(fmt.Sprintf("it has more than %d segments", maxSegments))
	}
	for i, seg := range r.Path {
		if name, ok := strings.CutPrefix(seg, "{"); ok {
			name, ok = strings.CutSuffix(name, "}")
			if seg = strings.TrimSuffix(name, "..."); !ok {
				return bad("a brace is not closed")
			}
		}
		switch {
		case seg == "" || seg == "." || seg == ".." || !isPlainWord(seg):
			return bad("a segment must contain only letters, digits and ._-")
		case i == len(r.Path)-1 && slices.Contains(actions, r.Path[i]):
			return bad(seg + " copies files, runs programs or takes over the connection")
		}
	}
	if asks {
		for _, p := range strings.Split(query, "&") {
			name, value, must := strings.Cut(p, "=")
			values, twice := r.Query[name]
			if name == "" || !isPlainWord(name) || !isPlainWord(value) || twice && (!must || values == nil) {
				return bad("its parameters must be names or name=value, joined by &")
			}
			if must {
				values = append(values, value)
			}
			r.Query[name] = values
		}
	}
	return r, nil
}

// isPlainWord reports whether s consists only of letters, digits and ._-, or is empty.
func isPlainWord(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// ParseEndpoint parses host:port from a manifest or a profile, without flags. The host is a name, "*." before a name of
// at least two parts, or an address. The result is in canonical spelling.
func ParseEndpoint(s string) (Endpoint, error) {
	const hint = "write example.com:443, *.example.com:443 or an address and a port"
	bad := func(why string) (Endpoint, error) {
		return Endpoint{}, &Error{Kind: Invalid, Message: "egress " + quoteTruncated(s) + ": " + why, Hint: hint}
	}
	host, port, ok := SplitPort(s)
	if !ok {
		return bad("it is not in the form host:port")
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
		return bad("brackets are required for IPv6 addresses, and allowed for nothing else")
	case wild && !strings.Contains(name, "."):
		return bad("it is too wide: name at least two parts after *.")
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
			return "", netip.Addr{}, "it is an address that is not in canonical form: write " + addr.WithZone("").Unmap().String()
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
		return "", "it has no host"
	case len(name) > maxName:
		return "", "its name is too long"
	}
	for _, label := range strings.Split(name, ".") {
		if why := labelFault(label); why != "" {
			return "", why
		}
	}
	if name = strings.ToLower(name); endsInNumber(name) {
		return "", "it is an address in a non-standard spelling"
	}
	return name, ""
}

func labelFault(label string) string {
	switch {
	case label == "" || len(label) > maxLabel:
		return "its name has a part that is empty or longer than 63 characters"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a part of its name begins or ends with a hyphen"
	}
	for _, b := range []byte(label) {
		switch {
		case b >= 0x80:
			return "its name is not ASCII: write it encoded, as xn--"
		case !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'):
			return "its name has a character that host names cannot have"
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
