package webpush

import (
	"crypto/ecdh"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest/pushtest"
)

// vector is the example of RFC 8291, appendix A.
var vector = Subscription{Endpoint: "https://push.example.net/x", Keys: Keys{
	P256DH: "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
	Auth:   "BTBZMqHH6r4Tts7J_aSIgg"}}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	b, err := encoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVector(t *testing.T) {
	t.Parallel()
	sender, err := ecdh.P256().NewPrivateKey(decode(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := vector.encryptMessage([]byte("When I grow up, I want to be a watermelon"), sender, decode(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	const want = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBr" +
		"u3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if err != nil || encoding.EncodeToString(got) != want {
		t.Errorf("%s, %v", encoding.EncodeToString(got), err)
	}
}

// TestSend: a push service verifies the sender, and the browser decrypts the message.
func TestSend(t *testing.T) {
	t.Parallel()
	p := pushtest.New(t)
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := key.Text()
	if err == nil {
		key, err = ParseKey(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.Public()
	if err != nil {
		t.Fatal(err)
	}
	var to Subscription
	to.Endpoint, to.Keys.P256DH, to.Keys.Auth = p.Subscribe(t, public)
	s := &Sender{Key: key, Contact: "https://bailey.example.com", HTTP: p.Client()}
	for _, message := range []string{"", "a message", strings.Repeat("x", MaxMessage)} {
		if err := s.Send(t.Context(), to, []byte(message), "topic", time.Minute); err != nil {
			t.Fatal(err, <-p.Faults)
		}
		if m := <-p.Messages; m.Text != message || m.Topic != "topic" || m.TTL != "60" || m.Subject != s.Contact {
			t.Errorf("got %+v", m)
		}
	}
	if err := s.Send(t.Context(), to, make([]byte, MaxMessage+1), "", time.Minute); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a long message: %v", err)
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Sender{Key: other, Contact: s.Contact, HTTP: p.Client()}).Send(t.Context(), to, nil, "", time.Minute); !errors.Is(err, bailey.Denied) {
		t.Errorf("another sender: %v", err)
	}
	if err := (&Sender{Key: key, Contact: s.Contact, HTTP: p.Client(), Now: func() time.Time { return time.Now().Add(-24 * time.Hour) }}).Send(
		t.Context(), to, nil, "", time.Minute); !errors.Is(err, bailey.Denied) {
		t.Errorf("an old token: %v", err)
	}
	if err := (&Sender{Key: key, Contact: s.Contact}).Send(t.Context(), to, nil, "", time.Minute); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a message into the own machine: %v", err)
	}
	for status, want := range map[int]error{http.StatusGone: ErrGone, http.StatusNotFound: ErrGone, 429: bailey.Unavailable,
		503: bailey.Unavailable, 400: bailey.Denied, 302: bailey.Denied} {
		p.AnswerWith(status)
		if err := s.Send(t.Context(), to, nil, "", time.Minute); err == nil || status != 302 && !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", status, err, want)
		}
	}
}

// TestAttackEndpoints: a browser cannot have the server send messages into its own network.
func TestAttackEndpoints(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "x", "http://push.example.net/", "https://", "https://user@push.example.net/", "https://localhost/",
		"https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/", "https://192.168.1.1/", "https://169.254.169.254/", "https://[fe80::1%25eth0]/",
		"https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://100.100.100.200/", "https://127.1/", "https://0x7f.0.0.0x1/",
		"https://2130706433/", "https://intranet/", "https://a.localhost./", "https://db.internal/", "https://printer.local/",
		"https://push.example.net:8443/", "https://push.example.net/#x", "https://push.example.net/" + strings.Repeat("x", 1000), "file:///etc/passwd"} {
		s := vector
		s.Endpoint = endpoint
		if err := s.Check(false); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%q is accepted: %v", endpoint, err)
		}
	}
	for _, endpoint := range []string{"https://fcm.googleapis.com/fcm/send/x:y", "https://updates.push.services.mozilla.com/wpush/v2/x",
		"https://web.push.apple.com/x", "https://wns2-par02p.notify.windows.com/w/?token=x", "https://8.8.8.8/"} {
		s := vector
		s.Endpoint = endpoint
		if err := s.Check(false); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.1.1", "100.64.0.1", "0.0.0.0", "::",
		"224.0.0.1", "255.255.255.255", "fe80::1", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "::10.0.0.1", "2001:db8::1"} {
		if IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	if _, err := publicClient().Get("https://127.0.0.1:1/"); err == nil || !strings.Contains(err.Error(), "not public") {
		t.Errorf("the client connects to this machine: %v", err)
	}
}

// FuzzSubscription: the keys of a browser are read or refused, and a message for keys that were read can be written.
func FuzzSubscription(f *testing.F) {
	good, err := json.Marshal(vector)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Add(`{"endpoint":"https://a.example/","keys":{"p256dh":"BA","auth":"AA"}}`)
	sender, err := ecdh.P256().NewPrivateKey([]byte("01234567890123456789012345678901"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Subscription
		if json.Unmarshal([]byte(text), &s) != nil || s.Check(false) != nil {
			return
		}
		if _, err := s.encryptMessage([]byte("x"), sender, make([]byte, 16)); err != nil {
			t.Errorf("%q was accepted, and has no message: %v", text, err)
		}
	})
}
