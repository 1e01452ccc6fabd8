//go:build linux || darwin

package settings

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"bailey"
)

func TestNetworkSettingsAreReadStrictly(t *testing.T) {
	many := "network:\n  endpoints:\n"
	for i := range maxEndpoints + 1 {
		many += fmt.Sprintf("    - to: h%d.example:443\n", i)
	}
	to := func(rest string) string {
		return "network:\n  endpoints:\n    - to: a.example:443\n      " + rest + "\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":           {"network: {proxy: x}", `:1:11: "proxy" is not a part of network`},
		"a list":                {"network: [a]", ":1:10: must have keys"},
		"unknown flag":          {to("open: true"), `:4:7: "open" is not a part of an endpoint`},
		"flag of a word":        {to("private: \"yes\""), ":4:16: private must be true or false"},
		"flag twice":            {to("private: false\n      private: true"), ":5:7"},
		"no place":              {"network:\n  endpoints:\n    - private: true\n", "an endpoint needs to"},
		"nothing":               {"network:\n  endpoints:\n    -\n", "an endpoint needs to"},
		"no port":               {"network:\n  endpoints:\n    - to: a.example\n", ":3:11: egress \"a.example\": it is not in the form host:port"},
		"a url":                 {"network:\n  endpoints:\n    - to: https://a.example\n", "it is not in the form host:port"},
		"a port of none":        {"network:\n  endpoints:\n    - to: a.example:0\n", "it is not in the form host:port"},
		"any":                   {"network:\n  endpoints:\n    - to: \"*:443\"\n", "a character that host names cannot have"},
		"a whole domain":        {"network:\n  endpoints:\n    - to: \"*.com:443\"\n", "too wide"},
		"a star inside":         {"network:\n  endpoints:\n    - to: \"a.*.example:443\"\n", "a character that host names cannot have"},
		"numbers":               {"network:\n  endpoints:\n    - to: 2130706433:443\n", "in a non-standard spelling"},
		"short address":         {"network:\n  endpoints:\n    - to: \"127.1:443\"\n", "in a non-standard spelling"},
		"mapped":                {"network:\n  endpoints:\n    - to: \"[::ffff:10.0.0.1]:443\"\n      private: true\n", "canonical form: write 10.0.0.1"},
		"no brackets":           {"network:\n  endpoints:\n    - to: \"fd12::1:22\"\n", "brackets"},
		"private, unsaid":       {"network:\n  endpoints:\n    - to: 10.0.0.1:443\n", ":3:9: egress 10.0.0.1:443 is private"},
		"metadata":              {"network:\n  endpoints:\n    - to: 169.254.169.254:80\n      private: true\n", "cloud metadata service"},
		"metadata by name":      {"network:\n  endpoints:\n    - to: metadata.google.internal:80\n      private: true\n", "cloud metadata service"},
		"plain and inspected":   {to("plain: true\n      inspect: true"), "both plain and inspected"},
		"twice":                 {"network:\n  endpoints:\n    - to: a.example:443\n    - to: A.example.:443\n", ":4:9: a.example:443 is named twice"},
		"many":                  {many, "there are more than 64 endpoints"},
		"for of a word":         {to("for: wrap"), ":4:12: for must be a list"},
		"for of a class":        {to("for: [\"[a-z]*\"]"), ":4:13: for must have names"},
		"for twice":             {to("for: [wrap, wrap]"), ":4:19: for must have names"},
		"for a path":            {to("for: [\"a\\\\*\"]"), "for must have names"},
		"many for":              {to("for: [" + strings.Repeat("a, ", maxFor+1) + "]"), "for must have names"},
		"upstream of TLS":       {"network: {upstream: \"https://p.example:3128\"}", "upstream must be http://host:port"},
		"upstream of a user":    {"network: {upstream: \"http://u:sesame@p.example:3128\"}", "without a user"},
		"upstream, no port":     {"network: {upstream: \"http://p.example\"}", "upstream must be http://host:port"},
		"upstream of any":       {"network: {upstream: \"http://*.p.example:3128\"}", "upstream must be http://host:port"},
		"upstream with a path":  {"network: {upstream: \"http://p.example:3128/x\"}", "upstream must be http://host:port"},
		"by name, by nobody":    {"network: {byName: true}", "byName needs upstream"},
		"a name of two letters": {"network:\n  endpoints:\n    - to: \"bücher.example:443\"\n", "write it encoded"},
	} {
		said, err := ParseSettings([]byte(c.text))
		if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(fmt.Sprint(err, bailey.HintOf(err)), "sesame") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if !reflect.DeepEqual(said.Network, Network{}) {
			t.Errorf("%s: left %+v", name, said.Network)
		}
	}
}
