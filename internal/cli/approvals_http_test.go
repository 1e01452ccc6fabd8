//go:build linux

package cli

import (
	"encoding/json"
	"net"
	"slices"
	"testing"

	"bailey"
)

// TestHTTPStatus checks that every error kind has an HTTP status.
func TestHTTPStatus(t *testing.T) {
	for _, k := range []bailey.Kind{bailey.Denied, bailey.Invalid, bailey.NotFound, bailey.Conflict, bailey.Unavailable, bailey.ToolFailed, bailey.Internal} {
		if httpStatus[k] < 400 {
			t.Errorf("%s has status %d", k, httpStatus[k])
		}
	}
}

// TestNames checks the accepted host names and origins: those of the flags, its own address and, on loopback,
// localhost.
func TestNames(t *testing.T) {
	l := httpFlags{hosts: []string{"console.example:443"}, origins: []string{"https://page.example"}}
	hosts, origins := l.allowedHosts(&net.TCPAddr{IP: net.IPv6loopback, Port: 7})
	if want := []string{"console.example:443", "[::1]:7", "localhost:7"}; !slices.Equal(hosts, want) {
		t.Errorf("hosts %v, want %v", hosts, want)
	}
	if want := []string{"https://page.example", "http://console.example:443", "http://[::1]:7", "http://localhost:7"}; !slices.Equal(origins, want) {
		t.Errorf("origins %v, want %v", origins, want)
	}
	if hosts, _ = l.allowedHosts(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}); slices.Contains(hosts, "localhost:7") {
		t.Errorf("%v: another machine's localhost", hosts)
	}
}

// FuzzHTTPAnswer checks that an accepted answer is unambiguous, and that every grant has a signature.
func FuzzHTTPAnswer(f *testing.F) {
	f.Add([]byte(`{"digest":"d","grant":true,"signature":"s"}`))
	f.Add([]byte(`{"grant":false,"reason":"r"}`))
	f.Add([]byte(`{"Grant":true,"grant":false}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseHTTPAnswer(b)
		if err != nil {
			return
		}
		var v map[string]any
		if json.Unmarshal(b, &v) != nil || v["grant"] != a.Grant || a.Grant && a.Signature == "" {
			t.Errorf("%q is read as %+v", b, a)
		}
	})
}
