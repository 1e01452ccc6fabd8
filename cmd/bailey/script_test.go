//go:build linux

package main

import (
	"flag"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"bailey/internal/bench"
	"bailey/internal/cli"
	"bailey/internal/shim"
)

// TestMain makes this test binary act as the program bailey too. Tests run it, it starts itself as the gateway, and the
// gateway executes it again for each cage.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // most tests wait for gateways and users; a command-line flag overrides this
	testscript.Main(m, map[string]func(){"bailey": func() { cli.SaysWhy = "no"; main() }, "bailey-bench": bench.Main, "bailey-shim": shim.Main, "bailey-profiled": profiled})
}
