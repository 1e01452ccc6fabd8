package bailey

import (
	"context"
	"fmt"
	"net"
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
}

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
