package redact

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"bailey"
)

// TestConfigRefused checks that each mistake has an error that names it and says how to correct it.
func TestConfigRefused(t *testing.T) {
	many := make([]Pattern, maxPatterns+1)
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"category":        {Config{Patterns: []Pattern{{Category: "my secret", Regexp: "x"}}}, `pattern 1 has the category "my secret"`},
		"no category":     {Config{Patterns: []Pattern{{Regexp: "x"}}}, `pattern 1 has the category ""`},
		"ipv4":            {Config{Patterns: []Pattern{{Category: IPv4, Regexp: "x"}}}, "pattern 1 (IPV4) has the category of a pseudonym"},
		"ipv6":            {Config{Patterns: []Pattern{{Category: IPv6, Regexp: "x"}}}, "pattern 1 (IPV6) has the category of a pseudonym"},
		"host":            {Config{Patterns: []Pattern{{Category: Host, Regexp: "x"}}}, "pattern 1 (HOST) has the category of a pseudonym"},
		"no regexp":       {Config{Patterns: []Pattern{{Category: "A"}}}, "pattern 1 (A) has a regular expression of 0 bytes"},
		"long regexp":     {Config{Patterns: []Pattern{{Category: "A", Regexp: strings.Repeat("x", maxPattern+1)}}}, "of 4097 bytes"},
		"bad regexp":      {Config{Patterns: []Pattern{{Category: "A", Regexp: "x"}, {Category: "B", Regexp: "("}}}, "pattern 2 (B) is not a regular expression"},
		"empty match":     {Config{Patterns: []Pattern{{Category: "A", Regexp: "x*"}}}, "pattern 1 (A) matches the empty text"},
		"example":         {Config{Patterns: []Pattern{{Category: "A", Regexp: "x1", Hides: []string{"x1", "x2"}}}}, `finds nothing in its example "x2"`},
		"counter example": {Config{Patterns: []Pattern{{Category: "A", Regexp: "x1", Leaves: []string{"x1"}}}}, `matches something in "x1"`},
		"many":            {Config{Patterns: many}, "more than 256 patterns"},
		"many allowed":    {Config{Allow: make([]Allow, maxPatterns+1)}, "more than 256 patterns"},
		"allow":           {Config{Allow: []Allow{{Regexp: "["}}}, "allowance 1 is not a regular expression"},
		"allow empty":     {Config{Allow: []Allow{{}}}, "allowance 1 has a regular expression of 0 bytes"},
		"allow break out": {Config{Allow: []Allow{{Regexp: "a)|(.*"}}}, "allowance 1 is not a regular expression"},
		"allow category":  {Config{Allow: []Allow{{Category: "x", Regexp: "a"}}}, `allowance 1 has the category "x"`},
		"allow example":   {Config{Allow: []Allow{{Regexp: "10[.]0", Passes: []string{"10.0.0.1"}}}}, `does not match its example "10.0.0.1" as a whole`},
		"without":         {Config{Without: []Category{"IPV5"}}, `category "IPV5" is not built in`},
	} {
		_, err := Compile(c.config)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", name, err, bailey.HintOf(err))
		}
	}
}

// TestCustom checks custom patterns, allowed values and excluded categories.
func TestCustom(t *testing.T) {
	rules, err := Compile(Config{
		Patterns: []Pattern{
			{Category: "TICKET", Regexp: `TICKET-\d+`, Hides: []string{"see TICKET-12"}, Leaves: []string{"TICKETS"}},
			{Category: "EMPLOYEE", Regexp: `employee (\w+),`},
		},
		Allow:   []Allow{{Category: IPv4, Regexp: `10\.0\.0\.\d+`, Passes: []string{"10.0.0.7"}}, {Regexp: `hunter2hunter|TICKET-1`}},
		Without: []Category{IPv6},
	})
	if err != nil {
		t.Fatal(err)
	}
	table := rules.NewTable()
	table.Learn("LEASE", "hunter2hunter")
	for in, want := range map[string]string{
		"TICKET-12 TICKET-1 TICKET-": "<TICKET> TICKET-1 TICKET-",
		"the employee miller, and":   "the employee <EMPLOYEE>, and",
		"10.0.0.9 10.0.1.9 fe80::1":  "10.0.0.9 <IPV4> fe80::1",
		"password=hunter2other":      "password=<PASSWORD>",
		"password=hunter2hunter":     "password=<LEASE>", // an allowance does not affect learned values
		"password=TICKET-12":         "password=<PASSWORD>",
	} {
		if got := plain(t, table, in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// TestCustomHolds checks that for a pattern that begins with a literal, text is held back from that literal to the end
// of the line. For any other pattern, the whole line must be held back.
func TestCustomHolds(t *testing.T) {
	for _, c := range []struct {
		regexp string
		want   []string
	}{
		{`TICKET-\d+`, []string{"see ", "", "", "[REDACTED_T_1] now\n", "next "}},
		{`\d+-TICKET`, []string{"", "", "", "see TICKET-12 now\n", ""}},
	} {
		rules, err := Compile(Config{Patterns: []Pattern{{Category: "T", Regexp: c.regexp}}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := rules.NewTable().Writer(&out)
		for i, s := range []string{"see TICK", "ET-1", "2 now", "\n", "next "} {
			out.Reset()
			w.Write([]byte(s))
			if out.String() != c.want[i] {
				t.Errorf("%s: after %q went out %q, want %q", c.regexp, s, out.String(), c.want[i])
			}
		}
	}
	rules, err := Compile(Config{Patterns: []Pattern{{Category: "T", Regexp: `\d+-TICKET`}}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := rules.NewTable().Writer(&out)
	w.Write(bytes.Repeat([]byte("a b "), maxLine/4+1))
	if out.Len() < maxLine-8 {
		t.Errorf("a line without an end is held: %d bytes out", out.Len())
	}
}

// TestTables checks that each row of the built-in data is well formed and matches its own example.
func TestTables(t *testing.T) {
	tables := builtIn()
	if len(tables.services) < 300 {
		t.Errorf("%d services", len(tables.services))
	}
	rows := 0
	for _, row := range strings.Split(stripComments(prefixText)+stripComments(ownPrefixText), "\n") {
		f := strings.Fields(row)
		if len(f) == 0 {
			continue
		}
		if rows++; len(f) != 5 || len(f[0]) < 3 || f[3] != "-" && f[3] != "i" {
			t.Errorf("row %q", row)
		}
	}
	count := 0
	for _, list := range tables.prefixes {
		for _, p := range list {
			count++
			if p.least < len(p.text) {
				t.Errorf("%s is %d long at least", p.text, p.least)
			}
			text := []byte(p.text + strings.Repeat("a1Z2", 80)[:p.least-len(p.text)])
			if n, _, open := p.matchToken(text, true); n != len(text) || open {
				t.Errorf("%s of %d matches %d", p.text, p.least, n)
			}
			if n, _, open := p.matchToken(text[:len(text)-1], false); n != 0 || !open {
				t.Errorf("%s does not wait", p.text)
			}
		}
	}
	if count != rows || count < 250 {
		t.Errorf("%d prefixes of %d rows", count, rows)
	}
}

// TestRulesConcurrent checks that rules, and one table, can be used by many goroutines at once.
func TestRulesConcurrent(t *testing.T) {
	rules := ruled(t)
	table := rules.NewTable()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 40 {
				in := fmt.Sprintf("password=hunter%dx%d from 10.1.%d.%d", i, j, i, j)
				out, found := table.Find(in)
				if len(found) != 2 || table.Restore(out) != in {
					t.Errorf("%q gives %q", in, out)
				}
				if back, _ := table.Give(out, Grant{Type: "path"}); !strings.HasSuffix(back, in[strings.Index(in, " "):]) {
					t.Errorf("%q gives %q", out, back)
				}
			}
		})
	}
	wg.Wait()
}
