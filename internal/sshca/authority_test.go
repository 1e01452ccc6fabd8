package sshca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
	"bailey/internal/ktest/touch"
)

// modulus returns an RSA public key with a modulus of the given size that nothing can sign for.
func modulus(bits uint) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
}

// lying claims to be an Ed25519 key and marshals to other bytes.
type lying struct{ ssh.PublicKey }

func (lying) Type() string { return ssh.KeyAlgoED25519 }

func TestIssue(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	for _, c := range []struct {
		principal           Principal
		sources             []string
		options, extensions map[string]string
	}{
		{Sandbox, nil, map[string]string{}, map[string]string{"permit-pty": ""}},
		{ReadOnly, nil, map[string]string{"force-command": DefaultShell}, map[string]string{}},
		{ReadOnly, []string{"192.0.2.7", "2001:DB8::/32", "10.0.0.0/8"}, map[string]string{
			"force-command": DefaultShell, "source-address": "192.0.2.7,2001:db8::/32,10.0.0.0/8"},
			map[string]string{}},
	} {
		r := request(t, c.principal)
		r.SourceAddresses = c.sources
		got := issue(t, a, r)
		if !maps.Equal(got.SSH.CriticalOptions, c.options) || !maps.Equal(got.SSH.Extensions, c.extensions) {
			t.Errorf("%s: options %v, extensions %v", c.principal, got.SSH.CriticalOptions, got.SSH.Extensions)
		}
		if !slices.Equal(got.SSH.ValidPrincipals, []string{string(c.principal)}) || got.Principal != c.principal {
			t.Errorf("%s: principals %q", c.principal, got.SSH.ValidPrincipals)
		}
		if got.SSH.CertType != ssh.UserCert || got.SSH.Serial != got.Serial || got.SSH.KeyId != got.Identity {
			t.Errorf("%+v", got)
		}
		if got.Fingerprint != ssh.FingerprintSHA256(r.Key) || got.Authority != a.Fingerprint() {
			t.Errorf("fingerprints %s and %s", got.Fingerprint, got.Authority)
		}
		if !got.ValidFrom.Equal(testTime.Add(-time.Minute)) || !got.Expires.Equal(testTime.Add(30*time.Minute)) ||
			int64(got.SSH.ValidAfter) != got.ValidFrom.Unix() || int64(got.SSH.ValidBefore) != got.Expires.Unix() {
			t.Errorf("valid from %v to %v", got.ValidFrom, got.Expires)
		}
		known := slices.Collect(maps.Keys(c.options))
		checker := ssh.CertChecker{Clock: newClock().Now, SupportedCriticalOptions: known}
		if err := checker.CheckCert(string(c.principal), got.SSH); err != nil {
			t.Error(err)
		}
	}
}

// TestOptionsAreSorted checks the signature of many certificates with two critical options, because the order of a map
// is random.
func TestOptionsAreSorted(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	r := request(t, ReadOnly)
	r.SourceAddresses = []string{"192.0.2.7"}
	known := []string{"force-command", "source-address"}
	checker := ssh.CertChecker{Clock: newClock().Now, SupportedCriticalOptions: known}
	for range 32 {
		if err := checker.CheckCert("bailey-readonly", issue(t, a, r).SSH); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusals checks that each refusal has its own message and a hint, and uses no serial.
func TestRefusals(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	before := a.serial.Load()
	own := map[string]string{}
	long, many := strings.Repeat("a", 129), slices.Repeat([]string{"192.0.2.1"}, 33)
	for name, c := range map[string]struct {
		kind   bailey.Kind
		says   string
		change func(*Request)
	}{
		"no principal":    {bailey.Denied, "no principal", func(r *Request) { r.Principal = "" }},
		"root":            {bailey.Denied, `the principal "root"`, func(r *Request) { r.Principal = "root" }},
		"two principals":  {bailey.Denied, `"sandbox,root"`, func(r *Request) { r.Principal = "sandbox,root" }},
		"other case":      {bailey.Denied, `"Sandbox"`, func(r *Request) { r.Principal = "Sandbox" }},
		"no key":          {bailey.Invalid, "has no public key", func(r *Request) { r.Key = nil }},
		"a certificate":   {bailey.Denied, "itself a certificate", func(r *Request) { r.Key = issue(t, a, *r).SSH }},
		"a disguise":      {bailey.Denied, "itself", func(r *Request) { r.Key = lying{issue(t, a, *r).SSH} }},
		"DSA":             {bailey.Denied, "DSA key", func(r *Request) { r.Key = dsaKey(t) }},
		"RSA 3071":        {bailey.Denied, "3071 bits", func(r *Request) { r.Key = publicOf(t, modulus(3071)) }},
		"RSA 2048":        {bailey.Denied, "2048 bits", func(r *Request) { r.Key = publicOf(t, modulus(2048)) }},
		"59 s":            {bailey.Invalid, "the lifetime 59s", func(r *Request) { r.Lifetime = 59 * time.Second }},
		"over an hour":    {bailey.Invalid, "the lifetime 1h0m0.0", func(r *Request) { r.Lifetime = time.Hour + 1 }},
		"negative":        {bailey.Invalid, "the lifetime -1m", func(r *Request) { r.Lifetime = -time.Minute }},
		"no user":         {bailey.Invalid, "has no user id", func(r *Request) { r.Identity.User = "" }},
		"no VM":           {bailey.Invalid, "has no VM id", func(r *Request) { r.Identity.VM = "" }},
		"no sandbox":      {bailey.Invalid, "has no sandbox id", func(r *Request) { r.Identity.Sandbox = "" }},
		"space":           {bailey.Invalid, `the character " "`, func(r *Request) { r.Identity.User = "an n" }},
		"newline":         {bailey.Invalid, `the character "\n"`, func(r *Request) { r.Identity.VM = "a\nb" }},
		"umlaut":          {bailey.Invalid, `the character "\xc3"`, func(r *Request) { r.Identity.Cert = "jörg" }},
		"delimiter":       {bailey.Invalid, `the delimiter "-vm"`, func(r *Request) { r.Identity.User = "ann-vm:x" }},
		"end of an id":    {bailey.Invalid, `the delimiter "-sbx"`, func(r *Request) { r.Identity.VM = "vm-sbx" }},
		"long":            {bailey.Invalid, "129 bytes", func(r *Request) { r.Identity.Cert = long }},
		"host name":       {bailey.Invalid, "neither an address", sources("example.org")},
		"two in one":      {bailey.Invalid, "neither an address", sources("192.0.2.1,192.0.2.2")},
		"pattern":         {bailey.Invalid, "neither an address", sources("!192.0.2.1")},
		"empty address":   {bailey.Invalid, "neither an address", sources("")},
		"prefix too long": {bailey.Invalid, "neither an address", sources("192.0.2.0/33")},
		"host bits":       {bailey.Invalid, "bits outside its prefix", sources("192.0.2.1/24")},
		"zone":            {bailey.Invalid, "has a zone", sources("fe80::1%eth0")},
		"4 in 6":          {bailey.Invalid, "in IPv6 form", sources("::ffff:192.0.2.1")},
		"any":             {bailey.Invalid, "does not restrict", sources("192.0.2.1", "0.0.0.0/0")},
		"any address":     {bailey.Invalid, "does not restrict", sources("::")},
		"too many":        {bailey.Invalid, "33 source addresses", sources(many...)},
	} {
		r := request(t, Sandbox)
		c.change(&r)
		issued := a.serial.Load() // a case may have issued a certificate to be refused as a key
		got, err := a.Issue(context.Background(), r)
		if got != nil {
			t.Errorf("%s: a certificate was issued", name)
		}
		message := wantRefusal(t, err, c.kind, c.says)
		if other, twice := own[message]; twice && name != "a disguise" && other != "a disguise" {
			t.Errorf("%s and %s have the same message %q", name, other, message)
		}
		if own[message] = name; a.serial.Load() != issued {
			t.Errorf("%s: a serial was used", name)
		}
	}
	if a.serial.Load() == before {
		t.Error("the two certificates that were sent as keys have no serial")
	}
}

func sources(list ...string) func(*Request) { return func(r *Request) { r.SourceAddresses = list } }

func dsaKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	p, q := new(big.Int).Lsh(big.NewInt(1), 1023), new(big.Int).Lsh(big.NewInt(1), 159)
	key, err := ssh.ParsePublicKey(ssh.Marshal(struct {
		Type       string
		P, Q, G, Y *big.Int
	}{"ssh-dss", p.SetBit(p, 0, 1), q.SetBit(q, 0, 1), big.NewInt(2), big.NewInt(4)}))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// acceptedKeys returns a key of each accepted type.
func acceptedKeys(t testing.TB) (keys []ssh.PublicKey) {
	t.Helper()
	keys = []ssh.PublicKey{publicOf(t, testKey(3).Public()), publicOf(t, modulus(3072)), publicOf(t, modulus(4096))}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, publicOf(t, key.Public()))
	}
	for _, kind := range touch.Kinds {
		key, err := ssh.ParsePublicKey(touch.Card{Kind: kind, Name: "card"}.Blob())
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func TestAcceptedKeys(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	for _, key := range acceptedKeys(t) {
		r := request(t, Sandbox)
		r.Key = key
		c := issue(t, a, r)
		if !bytes.Equal(c.SSH.Key.Marshal(), key.Marshal()) || c.Fingerprint != ssh.FingerprintSHA256(key) {
			t.Errorf("%s: another key was certified", key.Type())
		}
		checker := ssh.CertChecker{Clock: newClock().Now}
		if err := checker.CheckCert("sandbox", c.SSH); err != nil {
			t.Errorf("%s: %v", key.Type(), err)
		}
	}
	for _, d := range []time.Duration{MinLifetime, MaxLifetime} {
		r := request(t, Sandbox)
		r.Lifetime = d
		if c := issue(t, a, r); !c.Expires.Equal(testTime.Add(d)) {
			t.Errorf("lifetime %v: expires %v", d, c.Expires)
		}
	}
}

// failing is a signer and a reader that return an error, or a signature that is too short.
type failing struct{ err error }

func (f failing) Public() crypto.PublicKey                                  { return testKey(1).Public() }
func (f failing) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) { return []byte{1}, f.err }
func (f failing) Read([]byte) (int, error)                                  { return 0, f.err }

func TestNew(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	broken, now := failing{errors.New("broken")}, newClock().Now
	for _, c := range []struct {
		config Config
		kind   bailey.Kind
		says   string
	}{
		{Config{}, bailey.Invalid, "no signer or no clock"},
		{Config{Signer: testKey(1)}, bailey.Invalid, "no signer or no clock"},
		{Config{Signer: other, Now: now}, bailey.Invalid, "not Ed25519"},
		{Config{Signer: testKey(1), Now: now, Random: broken}, bailey.Unavailable, "random"},
		{Config{Signer: testKey(1), Now: now, ReadOnlyShell: "shell"}, bailey.Invalid, "absolute path"},
		{Config{Signer: testKey(1), Now: now, ReadOnlyShell: "/bin/sh -c id"}, bailey.Invalid, "absolute path"},
		{Config{Signer: testKey(1), Now: now, ReadOnlyShell: "/bin/../x"}, bailey.Invalid, "absolute path"},
	} {
		a, err := New(c.config)
		if wantRefusal(t, err, c.kind, c.says); a != nil {
			t.Errorf("%q: an authority was returned", c.says)
		}
	}
	for _, signer := range []crypto.Signer{broken, failing{}} {
		a, err := New(Config{Signer: signer, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Issue(context.Background(), request(t, Sandbox))
		wantRefusal(t, err, bailey.Unavailable, "sign")
	}
	early := newAuthority(t, testKey(1), func() time.Time { return time.Unix(60, 0) }, nil)
	_, err = early.Issue(context.Background(), request(t, Sandbox))
	wantRefusal(t, err, bailey.Unavailable, "clock")
}

// TestHostCertificates checks that the certificate of a host key proves one name and permits no login, and that no
// certificate for a login proves a name.
func TestHostCertificates(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	r := request(t, SandboxHost)
	r.Host = "sb-abc"
	got := issue(t, a, r)
	if got.SSH.CertType != ssh.HostCert || !slices.Equal(got.SSH.ValidPrincipals, []string{"sb-abc"}) ||
		len(got.SSH.CriticalOptions)+len(got.SSH.Extensions) > 0 {
		t.Errorf("%+v", got.SSH)
	}
	checker := ssh.CertChecker{Clock: newClock().Now, IsHostAuthority: func(key ssh.PublicKey, _ string) bool {
		return ssh.FingerprintSHA256(key) == a.Fingerprint()
	}, IsUserAuthority: func(ssh.PublicKey) bool { return true }}
	if err := checker.CheckHostKey("sb-abc:22", nil, got.SSH); err != nil {
		t.Error(err)
	}
	if err := checker.CheckHostKey("sb-other:22", nil, got.SSH); err == nil {
		t.Error("it proves another name")
	}
	if _, err := checker.Authenticate(nil, got.SSH); err == nil {
		t.Error("it logs in")
	}
	for _, name := range []string{"", "*", "sb-*", "sb-a,sb-b", "sb a", "sb-abc\n", strings.Repeat("a", 65)} {
		r.Host = name
		_, err := a.Issue(context.Background(), r)
		wantRefusal(t, err, bailey.Invalid, "name")
	}
	for _, p := range []Principal{Sandbox, ReadOnly} {
		r := request(t, p)
		r.Host = "sb-abc"
		_, err := a.Issue(context.Background(), r)
		wantRefusal(t, err, bailey.Denied, "name of a host")
	}
	r = request(t, SandboxHost)
	r.Host, r.ShellOptions = "sb-abc", []string{"--timeout=60"}
	_, err := a.Issue(context.Background(), r)
	wantRefusal(t, err, bailey.Invalid, "option")
	r.ShellOptions, r.SourceAddresses = nil, []string{"192.0.2.7"}
	_, err = a.Issue(context.Background(), r)
	wantRefusal(t, err, bailey.Invalid, "source addresses")
}

// TestSignRefusesWithoutPrincipal checks the last test before the signature, which no request reaches.
func TestSignRefusesWithoutPrincipal(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	key := request(t, Sandbox).Key
	for _, principals := range [][]string{nil, {}, {""}, {"a", "b"}} {
		err := a.signCertificate(&ssh.Certificate{Key: key, CertType: ssh.UserCert, ValidPrincipals: principals})
		wantRefusal(t, err, bailey.Internal, "exactly one principal")
	}
}

// TestSerials checks that concurrent certificates have consecutive serials, without 0.
func TestSerials(t *testing.T) {
	a := newAuthority(t, testKey(1), newClock().Now, endless(0xff))
	if a.serial.Load() != math.MaxUint64 {
		t.Fatalf("the first serial is not from the random source: %d", a.serial.Load())
	}
	const n = 64
	var mu sync.Mutex
	var serials []uint64
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			c, err := a.Issue(context.Background(), request(t, Sandbox))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			serials = append(serials, c.Serial)
		})
	}
	wait.Wait()
	slices.Sort(serials)
	if len(serials) != n || serials[0] != 1 || serials[n-1] != n || len(slices.Compact(serials)) != n {
		t.Errorf("serials %v", serials)
	}
	b, c := newAuthority(t, testKey(1), newClock().Now, nil), newAuthority(t, testKey(1), newClock().Now, nil)
	if b.serial.Load() == c.serial.Load() {
		t.Error("two authorities begin with the same serial")
	}
}

func TestIssueCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := newAuthority(t, testKey(1), newClock().Now, nil)
	if _, err := a.Issue(ctx, request(t, Sandbox)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestParseIdentity(t *testing.T) {
	want := Identity{User: "ann@example.org", VM: "-vm1", Sandbox: "a-sbx-b", Cert: "9"}
	text, err := want.Text()
	if err != nil || text != "user:ann@example.org-vm:-vm1-sbx:a-sbx-b-cert:9" {
		t.Fatal(text, err)
	}
	if got, err := ParseIdentity(text); err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "user:", "user:a-vm:b-sbx:c", "user:a-vm:b-sbx:c-cert:",
		"user:a-vm:b-cert:c-sbx:d", "User:a-vm:b-sbx:c-cert:d", "user:a-vm:b-sbx:c-cert:d-cert:e",
		"user:a-vm:b-sbx:c-cert:d\n", " user:a-vm:b-sbx:c-cert:d"} {
		if got, err := ParseIdentity(bad); err == nil || got != (Identity{}) {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// FuzzIdentity checks that an identity has one reading: it parses if and only if it is the text of its result.
func FuzzIdentity(f *testing.F) {
	f.Add("user:a-vm:b-sbx:c-cert:d", "a", "b", "c", "d")
	f.Add("user:a-vm-vm:b-sbx:c-cert:d", "a-vm", "user:", "-sbx:", "\x00")
	f.Fuzz(func(t *testing.T, s, user, vm, sandbox, cert string) {
		if i, err := ParseIdentity(s); err == nil {
			if again, err := i.Text(); err != nil || again != s {
				t.Errorf("%q is %+v, which is %q: %v", s, i, again, err)
			}
		}
		i := Identity{user, vm, sandbox, cert}
		text, err := i.Text()
		if err != nil {
			return
		}
		if got, err := ParseIdentity(text); err != nil || got != i || strings.Count(text, ":") != 4 {
			t.Errorf("%+v is %q, which is %+v: %v", i, text, got, err)
		}
	})
}

// rawKey is a key that was not parsed.
type rawKey struct {
	ssh.PublicKey
	blob []byte
}

func (k rawKey) Marshal() []byte { return k.blob }

// FuzzCertifiedKey checks that the signature of each certificate is good, whatever bytes arrive as a key.
func FuzzCertifiedKey(f *testing.F) {
	for _, key := range acceptedKeys(f) {
		f.Add(key.Marshal())
	}
	a, padded := newAuthority(f, testKey(1), newClock().Now, nil), modulus(3072)
	f.Add(ssh.Marshal(struct {
		Type string
		E, N []byte
	}{ssh.KeyAlgoRSA, []byte{0, 0, 1, 0, 1}, append([]byte{0, 0}, padded.N.Bytes()...)}))
	f.Add(issue(f, a, request(f, Sandbox)).SSH.Marshal())
	f.Fuzz(func(t *testing.T, blob []byte) {
		r := request(t, Sandbox)
		r.Key = rawKey{blob: blob}
		c, err := a.Issue(context.Background(), r)
		if err != nil {
			return
		}
		checker := ssh.CertChecker{Clock: newClock().Now}
		if err := checker.CheckCert("sandbox", c.SSH); err != nil || c.Fingerprint != ssh.FingerprintSHA256(c.SSH.Key) {
			t.Errorf("%x: %v", blob, err)
		}
	})
}

// BenchmarkIssue measures certificates beside the raw signatures that they contain. Both alternate in one loop, and the
// medians are compared, so that other load on the machine affects both and preemption affects neither. of-raw is the
// share of the rate of raw signatures, for a certificate and for a new key pair with its certificate.
func BenchmarkIssue(b *testing.B) {
	key, ctx := testKey(1), context.Background()
	a := newAuthority(b, key, time.Now, nil)
	r := request(b, ReadOnly)
	r.SourceAddresses = []string{"192.0.2.7"}
	message := issue(b, a, r).SSH.Marshal()
	cache, err := NewCredentials(CredentialsConfig{Issuer: a, Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	target := Target{Principal: Sandbox, Name: "web", Identity: r.Identity}
	var raw, issued, pairs []time.Duration
	for b.Loop() {
		start := time.Now()
		ed25519.Sign(key, message)
		signed := time.Now()
		if _, err := a.Issue(ctx, r); err != nil {
			b.Fatal(err)
		}
		certified := time.Now()
		if _, err := cache.generateCredential(ctx, target); err != nil {
			b.Fatal(err)
		}
		raw, issued = append(raw, signed.Sub(start)), append(issued, certified.Sub(signed))
		pairs = append(pairs, time.Since(certified))
	}
	b.ReportMetric(float64(median(raw)), "ns/raw")
	b.ReportMetric(float64(median(issued)), "ns/issue")
	b.ReportMetric(float64(median(pairs)), "ns/key+issue")
	b.ReportMetric(float64(median(raw))/float64(median(issued)), "of-raw")
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
