package redact

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGive checks that only the categories that a grant allows are restored, and that Give returns them. A secret must
// be restored only if its token is the whole text.
func TestGive(t *testing.T) {
	table := ruled(t).NewTable()
	table.Learn("LEASE", "a-leased-value")
	out, found := table.Find("from 10.1.2.3 host 10.1.2.3 fe80::12 https://acme.my.salesforce.com password=hunter2hunter a-leased-value [REDACTED_X_1]")
	if len(found) != 6 {
		t.Fatalf("%d found in %q", len(found), out)
	}
	const (
		none   = "from [REDACTED_IPV4_1] host [REDACTED_IPV4_1] [REDACTED_IPV6_1] [REDACTED_HOST_1] password=[REDACTED_PASSWORD_1] [REDACTED_LEASE_1] [REDACTED_X_1]"
		pseudo = "from 10.1.2.3 host 10.1.2.3 fe80::12 [REDACTED_HOST_1] password=[REDACTED_PASSWORD_1] [REDACTED_LEASE_1] [REDACTED_X_1]"
	)
	all := Categories()
	for _, c := range []struct {
		in    string
		grant Grant
		want  string
		given []Category
	}{
		{out, Grant{}, none, nil},
		{out, Grant{Type: "path"}, pseudo, []Category{IPv4, IPv6}},
		{out, Grant{Type: "path", Secrets: all}, pseudo, []Category{IPv4, IPv6}},
		{out, Grant{Secrets: all}, none, nil},
		{"[REDACTED_PASSWORD_1]", Grant{Secrets: []Category{Password}}, "hunter2hunter", []Category{Password}},
		{"[REDACTED_PASSWORD_1]", Grant{Type: "path", Secrets: []Category{Password}}, "hunter2hunter", []Category{Password}},
		{"[REDACTED_PASSWORD_1]", Grant{Secrets: []Category{Token}}, "[REDACTED_PASSWORD_1]", nil},
		{"[REDACTED_PASSWORD_1]", Grant{Type: "path"}, "[REDACTED_PASSWORD_1]", nil},
		{" [REDACTED_PASSWORD_1]", Grant{Secrets: all}, " [REDACTED_PASSWORD_1]", nil},
		{"[REDACTED_PASSWORD_1][REDACTED_PASSWORD_1]", Grant{Secrets: all}, "[REDACTED_PASSWORD_1][REDACTED_PASSWORD_1]", nil},
		{"[REDACTED__PASSWORD_1]", Grant{Secrets: all}, "[REDACTED_PASSWORD_1]", nil},
		{"[REDACTED_IPV4_1]", Grant{Secrets: all}, "[REDACTED_IPV4_1]", nil}, // pseudonyms are not granted as secrets
		{"[REDACTED_LEASE_1]", Grant{Secrets: []Category{"LEASE"}}, "a-leased-value", []Category{"LEASE"}},
	} {
		if got, given := table.Give(c.in, c.grant); got != c.want || !slices.Equal(given, c.given) {
			t.Errorf("%+v gives %v\n got %s\nwant %s", c.grant, given, got, c.want)
		}
	}
}

// TestGiveHasABound checks that a table restores at most maxLearned texts, because it must search for each of them from
// then on.
func TestGiveHasABound(t *testing.T) {
	table := ruled(t).NewTable()
	var in strings.Builder
	for i := range maxLearned + 1 {
		in.WriteString(table.tokenFor(IPv4, fmt.Appendf(nil, "10.1.%d.%d", i/256, i%256)) + " ")
	}
	out, _ := table.Give(in.String(), Grant{Type: "path"})
	if n := strings.Count(out, "REDACTED"); n != 1 || table.index.size != maxLearned {
		t.Errorf("%d tokens are left of %d, %d texts learned", n, maxLearned+1, table.index.size)
	}
}

// TestNoNameWithASecret checks that a tenant name that contains a learned value is not restored as a pseudonym.
func TestNoNameWithASecret(t *testing.T) {
	table := ruled(t).NewTable()
	table.Text("see https://acme-s3cr3t-lease.okta.com/")
	if got, _ := table.Give("[REDACTED_HOST_1]", Grant{Type: "url"}); got != "https://acme-s3cr3t-lease.okta.com" {
		t.Fatal(got)
	}
	table = ruled(t).NewTable()
	table.Learn("LEASE", "s3cr3t-lease")
	table.Text("see https://acme-s3cr3t-lease.okta.com/")
	if got, given := table.Give("[REDACTED_HOST_1]", Grant{Type: "url"}); given != nil {
		t.Errorf("%v: %s", given, got)
	}
}

// TestInput checks that a secret in the input of a call is hidden wherever it occurs later, even without the context by
// which it was found.
func TestInput(t *testing.T) {
	table := ruled(t).NewTable()
	out := table.Input(map[string]any{"password": "hunter2hunter", "pin": "password=1234", "list": []any{"from 10.1.2.3"}})
	if s := fmt.Sprint(out); strings.Contains(s, "hunter2") || strings.Contains(s, "10.1.2.3") {
		t.Fatal(s)
	}
	for in, want := range map[string]string{
		"login hunter2hunter": "login [REDACTED_PASSWORD_1]", "version 10.1.2.3": "version 10.1.2.3", "page 1234": "page 1234",
	} {
		if got, _ := table.Text(in); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestForeignTokens checks that a token of another session never gives the text of that session. It can at most name a
// text of this session.
func TestForeignTokens(t *testing.T) {
	rules := ruled(t)
	mine, other := rules.NewTable(), rules.NewTable()
	all := Grant{Type: "path", Secrets: Categories()}
	theirs, _ := other.Text("password=first-secret1 password=second-secret2 from 10.9.8.7")
	if got, given := mine.Give(theirs, all); got != theirs || given != nil {
		t.Errorf("an empty table gives %v: %s", given, got)
	}
	mine.Text("password=my-own-secret3")
	got, _ := mine.Give(theirs, all)
	if strings.Contains(got, "first-secret1") || strings.Contains(got, "second-secret2") || strings.Contains(got, "10.9.8.7") {
		t.Errorf("another session's secret came back: %s", got)
	}
	if !strings.Contains(got, "[REDACTED_PASSWORD_2]") {
		t.Errorf("a number this session never gave out became something: %s", got)
	}
}

// TestFullNeverRestores checks that a find beyond the bound of the table is hidden and cannot be restored.
func TestFullNeverRestores(t *testing.T) {
	table := ruled(t).NewTable()
	for i := range MaxEntries {
		table.tokenFor("FILL", []byte{byte(i), byte(i >> 8), 'x'})
	}
	out, n := table.Text("password=hunter2hunter from 10.1.2.3")
	if want := "password=[REDACTED_PASSWORD_X] from [REDACTED_IPV4_X]"; out != want || n != 2 {
		t.Errorf("%d: %s", n, out)
	}
	if got, given := table.Give(out, Grant{Type: "path", Secrets: Categories()}); got != out || given != nil {
		t.Errorf("gives %v: %s", given, got)
	}
}

// TestSpot checks that a pseudonym is restored only where it names the endpoint to contact.
func TestSpot(t *testing.T) {
	table := ruled(t).NewTable()
	table.Text("from 10.1.2.3 host fe80::12 https://acme.my.salesforce.com")
	for _, c := range []struct{ kind, in, want string }{
		{"host", "[REDACTED_IPV4_1]", "10.1.2.3"},
		{"host", "[REDACTED_IPV6_1]", "fe80::12"},
		{"host", "[REDACTED_IPV4_1].evil.example", ""},
		{"host", "x.[REDACTED_IPV4_1]", ""},
		{"host", "[REDACTED_IPV4_1]:22", ""},
		{"address", "[REDACTED_IPV4_1]:22", "10.1.2.3:22"},
		{"address", "[[REDACTED_IPV6_1]]:22", "[fe80::12]:22"},
		{"address", "[REDACTED_IPV4_1]/24", "10.1.2.3/24"},
		{"address", "[[REDACTED_IPV6_1]", ""},
		{"address", "[REDACTED_IPV4_1]@evil.example", ""},
		{"url", "https://[REDACTED_IPV4_1]", "https://10.1.2.3"},
		{"url", "https://[REDACTED_IPV4_1]:8443/a?b#c", "https://10.1.2.3:8443/a?b#c"},
		{"url", "https://[[REDACTED_IPV6_1]]:8443/a", "https://[fe80::12]:8443/a"},
		{"url", "[REDACTED_HOST_1]/services", "https://acme.my.salesforce.com/services"},
		{"url", "https://[REDACTED_IPV4_1]/x?ip=[REDACTED_IPV4_1]", "https://10.1.2.3/x?ip=[REDACTED_IPV4_1]"},
		{"url", "https://evil.example/[REDACTED_IPV4_1]", ""},
		{"url", "https://evil.example/?q=[REDACTED_IPV4_1]", ""},
		{"url", "https://evil.example/?u=x://[REDACTED_IPV4_1]/", ""},
		{"url", "https://evil.example/#[REDACTED_HOST_1]", ""},
		{"url", "https://[REDACTED_IPV4_1].evil.example/", ""},
		{"url", "https://[REDACTED_IPV4_1]:x@evil.example/", ""},
		{"url", "https://[REDACTED_IPV4_1]@evil.example/", ""},
		{"url", "https://[REDACTED_IPV4_1]:@evil.example/", ""},
		{"url", `https://[REDACTED_IPV4_1]\@evil.example/`, ""},
		{"url", `https://[REDACTED_IPV4_1]:\@evil.example/`, ""},
		{"url", "evil.example/?u=https://[REDACTED_IPV4_1]/", ""},
		{"url", "https://u@[REDACTED_IPV4_1]/", ""},
		{"url", "https://[REDACTED_IPV4_1]?@evil.example/", ""},
		{"url", "https://[REDACTED_IPV4_1]#@evil.example/", ""},
		{"subpath", "hosts/[REDACTED_IPV4_1].conf", "hosts/10.1.2.3.conf"},
		{"path", "[REDACTED_HOST_1]", ""}, // cleaning would change the path to an unknown text
		{"path", "logs/[REDACTED_IPV4_1]/a.log", "logs/10.1.2.3/a.log"},
		{"", "[REDACTED_IPV4_1]", ""},
		{"text", "[REDACTED_IPV4_1]", ""},
		{"Host", "[REDACTED_IPV4_1]", ""},
		{"url", "[REDACTED_", ""},
		{"host", "[REDACTED_IPV4_1", ""},
		{"host", "", ""},
	} {
		got, given := table.Give(c.in, Grant{Type: c.kind})
		if want := cmp.Or(c.want, c.in); got != want || (given != nil) != (c.want != "") {
			t.Errorf("%s %q gives %v: %q, want %q", c.kind, c.in, given, got, want)
		}
	}
}

// TestGivenIsHidden checks that a restored text is hidden in the output of a tool, even without any context that
// identifies it.
func TestGivenIsHidden(t *testing.T) {
	table := ruled(t).NewTable()
	out, _ := table.Text("password=hunter2hunter from 10.1.2.3")
	for _, bare := range []string{"it is hunter2hunter", "version 10.1.2.3"} {
		if s, n := table.Text(bare); n != 0 {
			t.Fatalf("the test shows nothing: %s", s)
		}
	}
	table.Give(out, Grant{Type: "path"})
	table.Give("[REDACTED_PASSWORD_1]", Grant{Secrets: []Category{Password}})
	for bare, want := range map[string]string{
		"it is hunter2hunter": "it is [REDACTED_PASSWORD_1]", "version 10.1.2.3": "version [REDACTED_IPV4_1]",
	} {
		if s, _ := table.Text(bare); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	if s, _ := table.Text("aHVudGVyMmh1bnRlcg=="); strings.Contains(s, "aHVudGVy") {
		t.Error("its base64 came out: " + s)
	}
}

// TestAgain checks that redacting a redacted text keeps its tokens, even if the text around them has changed.
func TestAgain(t *testing.T) {
	table := ruled(t).NewTable()
	out, _ := table.Text("password=hunter2hunter from 10.1.2.3 [REDACTED_X_1]")
	for in, want := range map[string]string{
		out: out,
		"the word is [REDACTED_PASSWORD_1], v [REDACTED_IPV4_1]": "the word is [REDACTED_PASSWORD_1], v [REDACTED_IPV4_1]",
		"password=other2other3 [REDACTED_PASSWORD_7] plain":      "password=[REDACTED_PASSWORD_2] [REDACTED__PASSWORD_7] plain",
		"nothing": "nothing",
	} {
		if got := table.Again(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// FuzzRestore checks that Restore returns every input unchanged after redaction, with rules of every kind.
func FuzzRestore(f *testing.F) {
	rules, err := Compile(Config{Patterns: []Pattern{{Category: "TICKET", Regexp: `T-\d+`}, {Category: "LINE", Regexp: `secret line (.*)`}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "[REDACTED_", "[REDACTED__PASSWORD_1] password=x1y2z3w4", "T-1[REDACTED_T-2_1]", "\xff\x00\x1b[3\x00", "p\x00a\x00s\x00s\x00w\x00o\x00r\x00d\x00=\x00h\x00u\x00n\x00t\x00e\x00r\x002\x00",
		"secret line [REDACTED_X_1]\r\n", "[REDACTED\x1b[0m_IPV4_1] 10.1.2.3", strings.Repeat("[REDACTED_", 20)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		table := rules.NewTable()
		table.Learn("K", "TED_")
		out, found := table.Find(in)
		if back := table.Restore(out); back != in {
			t.Fatalf("in %q\nout %q\nback %q", in, out, back)
		}
		if again := table.Again(out); table.Again(again) != again {
			t.Fatalf("in %q\nout %q\nagain %q", in, out, again)
		}
		last := 0
		for _, f := range found {
			if f.Start < last || f.End <= f.Start || f.End > len(in) {
				t.Fatalf("%q: findings %v", in, found)
			}
			last = f.End
		}
	})
}
