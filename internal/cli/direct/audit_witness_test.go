package direct

import (
	"testing"

	"bailey/internal/cli"
)

// TestWitnessListens checks that without TLS a witness accepts only addresses of this machine.
func TestWitnessListens(t *testing.T) {
	for addr, ok := range map[string]bool{"127.0.0.1:0": true, "[::1]:1": true, "0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "localhost:1": false, "127.0.0.1": false, "": false} {
		if err := cli.CheckLoopback(addr); (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
		if !ok {
			if l, err := (witnessFlags{listen: addr}).listenFor(); err == nil {
				l.Close()
				t.Errorf("%q: it listens", addr)
			}
		}
	}
}
