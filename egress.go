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

// Endpoint is a place outside that a tool may reach. Its flags widen what may be there and what may be said there, and not
// where it is: a manifest names the place, only a profile sets flags.
type Endpoint struct {
	Host    string `json:"host"` // a name, "*." and a name, or an address
	Port    int    `json:"port"`
	Private bool   `json:"private,omitempty"` // addresses that are not public will do; never those of metadata services
	Plain   bool   `json:"plain,omitempty"`   // what is said need not be TLS, and is not looked at
	NoSNI   bool   `json:"noSNI,omitempty"`   // TLS need not name the host
	ECH     bool   `json:"ech,omitempty"`     // TLS may hide the name that it asks for
	Inspect bool   `json:"inspect,omitempty"` // TLS is opened
}

// String is host:port, an address of version 6 in brackets. Flags stand in [Endpoint.Words].
func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Words are host:port and the flags, for people.
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

// Network is what a cage has in place of none: sockets that listen inside of it and are served outside. No packet leaves the
// cage, and nothing of the tool's stands between the two sides. It is pure data, and part of the cage's plan.
type Network struct {
	Endpoints []Endpoint // what is reached by it, for whoever explains the cage; sorted
	Listen    []Listen   // each is served by [Way.Serve], in this order
	Hosts     []HostName // lines of the cage's own /etc/hosts
	Env       []string   // NAME=value: proxy and trust variables
	Trust     bool       // the cage gets [Way.Trusted] at [TrustFile]
	API       *API       // the daemon that the one socket leads to, in place of endpoints; nil: none
}

// TrustFile is where a cage with [Network.Trust] finds the authorities that its tools believe, in PEM.
const TrustFile = "/run/bailey/trust/authorities.pem"

// Listen is a socket inside the cage. Network is tcp, with an address of 127.0.0.0/8 and a port; or unix, with a path
// below /run/bailey.
type Listen struct{ Network, Address string }

// HostName is a name that resolves to an address inside the cage.
type HostName struct{ Address, Name string }

// Way is the other side of a [Network], for one run.
type Way interface {
	// Trusted is what the tool is to believe, in PEM; it is asked for once, before Serve.
	Trusted() []byte
	// Serve takes connections from the cage's listeners, in the order in which they were planned, until ctx ends, which is when
	// nothing of the cage lives. It closes them, and when it returns nothing that came over one is open.
	Serve(ctx context.Context, listeners []net.Listener) error
	// Report is whole once Serve has returned.
	Report() EgressReport
}

// Injection is a secret that the cage has a placeholder of. It goes to these endpoints, in these places, over TLS that was
// verified, and nowhere else.
type Injection struct {
	Name        string // for receipts
	Placeholder string
	Value       Secret
	To          []string // endpoints, as host:port
	Headers     []string // where it may stand, as a whole or as a part; in Authorization also under Basic
	Query       []string // parameters where it may stand
}

// The kinds of an [EgressEvent].
const (
	EgressClosed  = "closed"  // a connection that was allowed has ended
	EgressRefused = "refused" // something was not allowed
	EgressMisused = "misused" // a placeholder was sent where its secret does not go
	EgressFailed  = "failed"  // something was allowed and did not come about
)

// EgressEvent is one thing that came to pass between a cage and the outside, for the receipt. What comes from the cage is
// quoted in it.
type EgressEvent struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Via     string    `json:"via"`               // connect, http, socks, forward, tls, unix
	Target  string    `json:"target,omitempty"`  // host:port, of unix what was asked for; "" where nobody could tell
	Address string    `json:"address,omitempty"` // that was connected to
	Reason  string    `json:"reason,omitempty"`
	Hint    string    `json:"hint,omitempty"`
	Up      int64     `json:"up,omitempty"`   // bytes out of the cage
	Down    int64     `json:"down,omitempty"` // and into it
}

// Words are one line that an agent can act on.
func (e EgressEvent) Words() string {
	if e.Hint == "" {
		return e.Reason
	}
	return fmt.Sprintf("%s; %s", e.Reason, e.Hint)
}

// EgressTotals are all events of a call, those included that were too many to be told.
type EgressTotals struct {
	Connections int64 `json:"connections"` // that were allowed
	Refused     int64 `json:"refused"`     // and misused
	Failed      int64 `json:"failed"`
	Up          int64 `json:"up"`
	Down        int64 `json:"down"`
	Untold      int64 `json:"untold"` // events that nobody was told of
}

// EgressReport is what a call did outside of its cage.
type EgressReport struct {
	EgressTotals
	Events []EgressEvent `json:"events,omitempty"` // in their order
}

// Refusals are what was not allowed, a line each, the first of several that are alike.
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
