package egress

import (
	"net/netip"
	"strings"
	"testing"

	"bailey"
)

// TestDecide checks the table in docs/egress.md.
func TestDecide(t *testing.T) {
	list, err := NewAllowlist([]Endpoint{{Host: "api.example.com", Port: 443}, {Host: "*.cdn.example", Port: 443}, {Host: "192.88.98.7", Port: 443, NoSNI: true},
		{Host: "db.internal.example", Port: 5432, Private: true, Plain: true}, {Host: "10.0.0.9", Port: 5432, Private: true}, {Host: "2606:2800:220:1::1", Port: 443},
		{Host: "localhost", Port: 8080, Private: true}})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"api.example.com:443":              "",
		"API.Example.COM:443":              "",
		"api.example.com.:443":             "",
		"a.cdn.example:443":                "",
		"a.b.cdn.example:443":              "",
		"192.88.98.7:443":                  "",
		"[2606:2800:220:1::1]:443":         "",
		"db.internal.example:5432":         "",
		"10.0.0.9:5432":                    "",
		"localhost:8080":                   "",
		"evil.example:443":                 "allowed: api.example.com:443",
		"api.example.com:80":               "is not allowed",
		"api.example.com:8443":             "is not allowed",
		"cdn.example:443":                  "is not allowed",
		"evilcdn.example:443":              "is not allowed",
		"api.example.com.evil.example:443": "is not allowed",
		"xapi.example.com:443":             "is not allowed",
		"192.88.98.8:443":                  "is not allowed",
		"10.0.0.9:443":                     "is not allowed",
		"localhost:443":                    "is not allowed",
		"metadata.google.internal:80":      "never",
		"169.254.169.254:80":               "is not allowed",
	} {
		parsed, ref := ParseTarget(target)
		if ref == nil {
			ref = list.Decide(parsed).Refusal()
		}
		if got := words(ref); want == "" && ref != nil || want != "" && (ref == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	nested, _ := NewAllowlist([]Endpoint{{Host: "*.example.com", Port: 443, Private: true}, {Host: "*.a.example.com", Port: 443}, {Host: "x.a.example.com", Port: 443, Plain: true}, {Host: "*.com.example", Port: 443}})
	for name, want := range map[string]string{"b.example.com": "*.example.com:443", "b.a.example.com": "*.a.example.com:443", "x.a.example.com": "x.a.example.com:443", "a.example.com": "*.example.com:443"} {
		if got := nested.Decide(Target{name: name, port: 443}).entry; got.String() != want {
			t.Errorf("%s falls to %s, want %s", name, got, want)
		}
	}
	if (Verdict{}).Allowed() || (Verdict{}).Refusal() == nil {
		t.Error("the zero verdict allows")
	}
	if empty, _ := NewAllowlist(nil); empty.Decide(Target{name: "x.example", port: 443}).Allowed() {
		t.Error("an empty list allows")
	}
}

func words(r *Refusal) string {
	if r == nil {
		return ""
	}
	return r.String()
}

// TestSpellings checks that every other spelling of a target is refused before the decision.
func TestSpellings(t *testing.T) {
	for _, target := range []string{
		"2130706433:443", "0x7f000001:443", "0x7f.0.0.1:443", "0177.0.0.1:443", "017700000001:443", "127.1:443", "127.0.1:443", "0:443", "127.0.0.1.:443",
		"0x7F.1:443", "1.2.3.08:443", "example.0x7f:443", "1.2.3.4.5:443", "0x:443", "example.1:443",
		"::1:443", "[::1:443", "::1]:443", "[127.0.0.1]:443", "[api.example.com]:443", "[]:443", "[[::1]]:443", "[::1]443",
		"[::ffff:127.0.0.1]:443", "[::FFFF:7f00:1]:443", "[0:0:0:0:0:0:0:1]:443", "[fe80::1%25eth0]:443", "[fe80::1%eth0]:443", "[2606:2800:220:1:0:0:0:1]:443", "[2606:2800:220:1::A]:443",
		"user@api.example.com:443", "user:pw@api.example.com:443", "api.example.com@evil.example:443", "api.example.com\x00.evil.example:443", "api.example.com%00:443",
		"api%2eexample.com:443", "api.example.com/:443", "api.example.com#:443", "api.example.com?:443", "api.example.com\\:443", "api.example.com :443", " api.example.com:443", "api.example.com:443 ",
		"api.example.com\t:443", "api.example.com\r\nX: y:443", "api..example.com:443", ".api.example.com:443", "api.example.com..:443", ".:443", ":443", "-a.example:443", "a-.example:443",
		"äpi.example.com:443", "api。example.com:443", "ａpi.example.com:443", "api.example.com", "api.example.com:", "api.example.com:0", "api.example.com:0443", "api.example.com:65536",
		"api.example.com:+443", "api.example.com:443a", "api.example.com:https", "api.example.com:443:443", "*.example.com:443", "*:443", "",
		strings.Repeat("a", 64) + ".example:443", strings.Repeat("a.", 130) + "example:443", strings.Repeat("a", 400) + ":443",
	} {
		if got, ref := ParseTarget(target); ref == nil {
			t.Errorf("%q is read as %s", target, got)
		} else if strings.IndexFunc(ref.String(), func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			t.Errorf("%q: the refusal holds what it refuses: %q", target, ref)
		}
	}
}

// TestAddresses checks that each special address has a class, and that metadata services are never allowed.
func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"93.184.216.34": "", "8.8.8.8": "", "2606:4700::1111": "", "172.32.0.1": "", "100.128.0.1": "", "11.0.0.1": "", "192.0.1.1": "",
		"127.0.0.1": "no", "127.255.255.254": "no", "::1": "no", "0.0.0.0": "no", "0.1.2.3": "no", "::": "no",
		"10.1.2.3": "no", "172.16.0.1": "no", "172.31.255.255": "no", "192.168.1.1": "no", "fd12::1": "no", "fc00::1": "no", "fec0::1": "no",
		"169.254.1.1": "no", "fe80::1": "no", "fe80::1%eth0": "no", "224.0.0.1": "no", "239.1.1.1": "no", "ff02::1": "no", "255.255.255.255": "no", "240.0.0.1": "no",
		"100.64.0.1": "no", "100.127.255.255": "no", "192.0.2.1": "no", "198.51.100.1": "no", "203.0.113.1": "no", "198.18.0.1": "no", "198.19.255.255": "no", "192.88.99.1": "no",
		"::ffff:127.0.0.1": "no", "::ffff:10.0.0.1": "no", "::ffff:8.8.8.8": "", "::127.0.0.1": "no", "::8.8.8.8": "no", "::ffff:0:8.8.8.8": "no",
		"64:ff9b::7f00:1": "no", "64:ff9b::808:808": "no", "64:ff9b:1::808:808": "no", "2002:7f00:1::": "no", "2002:808:808::1": "no", "2001::1": "no", "2001:0:4136:e378:8000:63bf:3fff:fdd2": "no",
		"2001:db8::1": "no", "2001:20::1": "no", "3fff::1": "no", "100::1": "no", "5f00::1": "no", "4000::1": "no",
		"169.254.169.254": "never", "169.254.170.2": "never", "169.254.169.253": "never", "fd00:ec2::254": "never", "fd00:ec2::23": "never", "100.100.100.200": "never",
		"168.63.129.16": "never", "192.0.0.192": "never", "fd20:ce::254": "never", "::ffff:169.254.169.254": "never", "::169.254.169.254": "never", "64:ff9b::a9fe:a9fe": "never",
		"64:ff9b:1::a9fe:a9fe": "never", "2002:a9fe:a9fe::1": "never", "2001:0:a9fe:a9fe::1": "never", "2001:0:1:1:0:0:5601:5601": "never", "fe80::5efe:a9fe:a9fe": "never",
		"2606:4700::200:5efe:a9fe:a9fe": "never", "2606:4700::200:5efe:808:808": "", "::ffff:0:a9fe:a9fe": "never",
	} {
		what, never := addressClass(netip.MustParseAddr(addr))
		got := ""
		if what != "" {
			got = "no"
		}
		if never {
			got = "never"
		}
		if got != want {
			t.Errorf("%s is %q (%s), want %q", addr, got, what, want)
		}
	}
	if what, _ := addressClass(netip.Addr{}); what == "" {
		t.Error("no address at all is public")
	}
}

// TestEntriesRefused checks that an entry is refused if it could never match or matches too much.
func TestEntriesRefused(t *testing.T) {
	for _, e := range []Endpoint{{}, {Host: "x.example"}, {Host: "x.example", Port: 70000}, {Host: "*", Port: 443}, {Host: "*.", Port: 443}, {Host: "*.com", Port: 443},
		{Host: "a.*.example", Port: 443}, {Host: "*.*.example.com", Port: 443}, {Host: "*.1.2.3.4", Port: 443}, {Host: "*a.example.com", Port: 443}, {Host: "127.0.0.1", Port: 443}, {Host: "127.1", Port: 443, Private: true},
		{Host: "169.254.169.254", Port: 80, Private: true}, {Host: "metadata.google.internal", Port: 80, Private: true}, {Host: "x.example:443", Port: 443}, {Host: "x.example/a", Port: 443},
		{Host: "x.example", Port: 443, Plain: true, Inspect: true}, {Host: "bücher.example", Port: 443}, {Host: "::ffff:8.8.8.8", Port: 443}} {
		if _, err := New(Config{Allow: []Endpoint{e}}); bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := New(Config{Allow: allow("x.example:443", "X.example.:443")}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("twice the same: %v", err)
	}
	for _, s := range []string{"x.example", "x.example:0", "https://x.example:443", "x.example:443/a", "", ":443"} {
		if _, err := ParseEndpoint(s); err == nil {
			t.Errorf("%q is an endpoint", s)
		}
	}
	if e, err := ParseEndpoint("[2606:2800:220:1::1]:443"); err != nil || e.Host != "2606:2800:220:1::1" {
		t.Errorf("%+v, %v", e, err)
	}
}

// FuzzTarget checks that a parsed target has one spelling, which parses to the same target, and contains nothing that
// affects a terminal or a header.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"api.example.com:443", "[::1]:443", "127.0.0.1:80", "0x7f.1:1", "a%00b:1", "[fe80::1%a]:443", "x.:1", "*.x:1"} {
		f.Add(s)
	}
	list, _ := NewAllowlist(allow("*.example.com:443", "api.example.com:443"))
	f.Fuzz(func(t *testing.T, s string) {
		got, ref := ParseTarget(s)
		if ref != nil {
			if !ascii(ref.why) {
				t.Fatalf("%q in a refusal", ref.why)
			}
			return
		}
		again, ref := ParseTarget(got.String())
		if ref != nil || again != got || again.String() != got.String() || !ascii(got.String()) {
			t.Fatalf("%q is %s, which is %s", s, got, again)
		}
		if v := list.Decide(got); v.Allowed() && !strings.HasSuffix(got.name, ".example.com") {
			t.Fatalf("%q is allowed as %s", s, got)
		}
	})
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < ' ' || r > '~') }) < 0
}

// FuzzAddress checks that a never allowed address has a class, and that no private, loopback, link-local, multicast or
// unspecified one counts as public.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "2606::"} {
		a := netip.MustParseAddr(s)
		f.Add(a.AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		what, never := addressClass(a)
		if never && what == "" {
			t.Fatal(a)
		}
		if u := a.Unmap(); what == "" && (u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified()) {
			t.Fatalf("%s is public", a)
		}
	})
}
