package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"bailey"
)

// maxHeader limits the header of a response in bytes; the rest is not read.
const maxHeader = 16 << 10

// webhook posts messages.
type webhook struct {
	near, far *http.Client // for http and for https
	key       func() (Key, error)
	now       func() time.Time
	pauses    []time.Duration // before each further attempt
}

func newWebhook(c Config) *webhook {
	return &webhook{near: newClient(true, c), far: newClient(false, c), key: c.Key, now: c.Now, pauses: c.Pauses}
}

// newClient returns a client that keeps no connection, follows no redirect and uses no proxy. It checks the address
// that it is about to connect to, because a name may resolve differently each time.
func newClient(near bool, c Config) *http.Client {
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return checkAddress(at.Addr(), near)
	}}
	return &http.Client{
		Timeout:       c.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxHeader,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots},
		},
	}
}

// clientFor returns the client for a target.
func (w *webhook) clientFor(target string) (*http.Client, error) {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
	case u.Scheme == "https":
		return w.far, nil
	case u.Scheme == "http":
		return w.near, nil
	}
	return nil, bailey.Invalid.New("the webhook's url is malformed", "use https://…, or http:// for this machine")
}

// sendMessage posts m, in at most tries attempts, and returns the response as text.
func (w *webhook) sendMessage(ctx context.Context, target string, m Message, tries int) (string, error) {
	client, err := w.clientFor(target)
	if err != nil {
		return "", err
	}
	key, err := w.key()
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		code, err := w.postOnce(ctx, client, target, m.key, key, body)
		if err == nil && code/100 == 2 {
			return fmt.Sprintf("%s answered %d", Where(target), code), nil
		}
		if n >= tries || !shouldRetry(code, err) || !waitPause(ctx, w.pauses, n) {
			return "", deliveryError(target, code, err, n)
		}
	}
}

// postOnce makes one attempt. It does not read the body of the response.
func (w *webhook) postOnce(ctx context.Context, client *http.Client, target, id string, key Key,
	body []byte) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	at := w.now()
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"bailey"},
		"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {key.signBody(id, at, body)},
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	answer.Body.Close()
	return answer.StatusCode, nil
}

// shouldRetry reports whether another attempt may succeed.
func shouldRetry(code int, err error) bool {
	if err != nil {
		return !errors.Is(err, bailey.Denied)
	}
	return code >= 500 || code == http.StatusTooManyRequests
}

// waitPause pauses after the nth attempt. It returns false if ctx ends first.
func waitPause(ctx context.Context, pauses []time.Duration, n int) bool {
	var pause time.Duration
	if len(pauses) > 0 {
		pause = pauses[min(n, len(pauses))-1]
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}

// deliveryError describes the result of the last attempt. It contains only scheme and host of the target.
func deliveryError(target string, code int, err error, tries int) error {
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err // its text contains the whole URL
	}
	var own *bailey.Error
	switch {
	case errors.As(err, &own):
		return own
	case err != nil:
		return bailey.Unavailable.Errorf("run bailey notify test to try again",
			"%s did not answer (tries: %d): %s", Where(target), tries, plainLine(err.Error(), 200))
	case code/100 == 3:
		return bailey.Denied.Errorf("set the target url in settings.yaml, then run bailey init --apply",
			"%s answered %d, but redirects are not followed", Where(target), code)
	}
	return bailey.Unavailable.Errorf("check the receiver's log; run bailey notify test to try again",
		"%s answered %d (tries: %d)", Where(target), code, tries)
}

// Where returns scheme and host of a URL. The rest may be a secret.
func Where(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "the webhook"
	}
	return plainLine((&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), maxName)
}

// metadataAddrs returns the addresses of cloud services that give credentials to any process on this machine, except
// those with link-local addresses: Amazon's and Google's over IPv6, Alibaba's, Azure's, Oracle's.
func metadataAddrs() []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	}
}

// checkAddress returns why nothing is sent to an address. If near is true, the address must be one of this machine.
func checkAddress(address netip.Addr, near bool) error {
	a := embeddedIPv4(address.Unmap().WithZone(""))
	what := ""
	switch {
	case !a.IsValid() || a.IsUnspecified():
		what = "not the address of a machine"
	case near && !a.IsLoopback():
		what = "not on this machine, as http requires"
	case a.IsLinkLocalUnicast() || slices.Contains(metadataAddrs(), a):
		what = "link-local, or a cloud metadata service"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		what = "a multicast address"
	}
	if what == "" {
		return nil
	}
	return bailey.Denied.Errorf("set another url in settings.yaml, then run bailey init --apply",
		"the webhook's address %s is %s", address, what)
}

// embeddedIPv4 returns the IPv4 address to which an IPv6 address leads: by NAT64 (RFC 6052), by 6to4 (RFC 3056), or in
// compatible form (RFC 4291, section 2.5.5.1).
func embeddedIPv4(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case a.Is4():
		return a
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a) &&
		!a.IsLoopback() && !a.IsUnspecified():
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// Key signs webhook messages. The zero Key is not a usable key.
type Key struct{ raw []byte }

const (
	keyPrefix      = "whsec_"
	minKey, maxKey = 24, 64 // bytes, from Standard Webhooks
)

// NewKey makes a key of 32 random bytes.
func NewKey() Key {
	k := Key{make([]byte, 32)}
	rand.Read(k.raw) // never fails (crypto/rand)
	return k
}

// ParseKey parses a key in the format of [Key.Text]; a newline may follow.
func ParseKey(text []byte) (Key, error) {
	s, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), keyPrefix)
	raw, err := base64.StdEncoding.Strict().DecodeString(s)
	if !ok || err != nil || strings.ContainsAny(s, "\r\n") || len(raw) < minKey || len(raw) > maxKey {
		return Key{}, bailey.Invalid.Errorf("run bailey notify key --new to create another",
			"the key of the webhook must be %s and base64 of %d to %d bytes", keyPrefix, minKey, maxKey)
	}
	return Key{raw}, nil
}

// Text returns the key itself, in the format for receivers.
func (k Key) Text() bailey.Secret {
	return bailey.NewSecret(keyPrefix + base64.StdEncoding.EncodeToString(k.raw))
}

// Fingerprint distinguishes keys without revealing them.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256(append([]byte("bailey notify key\x00"), k.raw...))
	return fmt.Sprintf("%x", sum[:8])
}

func (Key) String() string               { return "***" }
func (Key) GoString() string             { return "***" }
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"***"`), nil }

// signBody returns the signature of a body that is sent with an id at a time.
func (k Key) signBody(id string, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, k.raw)
	fmt.Fprintf(h, "%s.%d.", id, at.Unix())
	h.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}
