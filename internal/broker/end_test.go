//go:build linux || darwin

package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/peer"
)

// mintery is an issuer in memory that gives names to its credentials and records each revocation.
type mintery struct {
	mu      sync.Mutex
	made    int
	revoked []string
	fail    error
	crash   bool
	until   time.Time
	ended   chan string
}

func newMintery() *mintery { return &mintery{ended: make(chan string, 64)} }

func (m *mintery) make(decode func(any) error, _ string) (Adapter, string, error) {
	var word string
	return m, "mintery", decode(&word)
}

func (m *mintery) Mint(context.Context, time.Duration) (Minted, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crash {
		secret := []byte(value) // on the stack
		panic("no good: " + string(secret))
	}
	if m.fail != nil {
		return Minted{}, m.fail
	}
	m.made++
	return Minted{Value: []byte(value), ID: "mint-" + string(rune('a'+m.made-1)), Until: m.until}, nil
}

func (m *mintery) Revoke(_ context.Context, id string, _ []byte) error {
	m.mu.Lock()
	m.revoked = append(m.revoked, id)
	m.mu.Unlock()
	m.ended <- id
	return nil
}

func (m *mintery) next(t *testing.T) string {
	t.Helper()
	select {
	case id := <-m.ended:
		return id
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was revoked")
		return ""
	}
}

// withMintery returns a house whose lease free comes from m, with the given ttl.
func withMintery(t *testing.T, m *mintery, ttl string) *house {
	h := &house{t: t, dir: t.TempDir()}
	h.config = Config{Dir: h.dir, Program: "test", Adapters: map[string]Make{"mintery": m.make, "literal": makeLiteral}}
	text := strings.Replace(table(), `free: {literal: "`+value+`", scope: anything, ttl: 1m`, `free: {mintery: x, scope: anything, ttl: `+ttl, 1)
	return h.begin(t, text)
}

// TestEndOfALoan checks that a loan ends with Return, with its connection, at its expiry and with the broker. Each time
// the issuer must be told, and the journal must say why.
func TestEndOfALoan(t *testing.T) {
	ktest.Long(t)
	m := newMintery()
	m.until = time.Now().Add(time.Hour)
	h := withMintery(t, m, "1h")
	first := h.lend(loanOf("", nil, "free"))
	if !strings.HasSuffix(first.IDs[0], "=mint-a~"+m.until.UTC().Format(time.RFC3339)+SameUID) {
		t.Errorf("the receipt would have %s", first.IDs[0])
	}
	first.Return()
	if id := m.next(t); id != "mint-a" {
		t.Errorf("%s was revoked", id)
	}
	ctx, cancel := context.WithCancel(t.Context()) // the call of the gateway ends, as if its process did
	if _, err := h.client.Lend(ctx, loanOf("", nil, "free")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if id := m.next(t); id != "mint-b" {
		t.Errorf("%s was revoked", id)
	}
	h.lend(loanOf("", nil, "free"))
	h.end()
	if id := m.next(t); id != "mint-c" {
		t.Errorf("%s was revoked", id)
	}
	j := h.journal()
	for _, why := range []string{`"why":"returned"`, `"why":"its connection ended"`, `"why":"the broker stopped"`, `"mint":"mint-b"`, `"lives":`} {
		if !strings.Contains(j, why) {
			t.Errorf("the journal lacks %s:\n%s", why, j)
		}
	}
	short := withMintery(t, m, "1s")
	lease := short.lend(loanOf("", nil, "free"))
	m.next(t)
	lease.Return() // too late, but harmless
	short.end()
	if j := short.journal(); !strings.Contains(j, "it timed out") {
		t.Errorf("%s", j)
	}
}

// TestLeaseAfterItsEnd checks that a returned lease cannot be returned or used again, and that a connection cannot end
// the loan of another one.
func TestLeaseAfterItsEnd(t *testing.T) {
	h := newHouse(t, table())
	text := textOf(h.question("one"))
	l := loanOf(text, []string{ada.sign(text)}, "one")
	first, done, err := h.client.dialBroker(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	lease, err := h.client.requestLoan(first, l)
	if err != nil {
		t.Fatal(err)
	}
	second, done2, err := h.client.dialBroker(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done2()
	back := func(c *peer.Conn) error {
		return roundTrip(c, askReturn, brokerRequest{Version: version, IDs: plainLeaseIDs(lease.IDs)}, &struct{}{})
	}
	if err := back(second); !errors.Is(err, bailey.NotFound) {
		t.Errorf("another connection's: %v", err)
	}
	if _, err := h.client.requestLoan(first, loanOf("", nil, "free")); !errors.Is(err, bailey.Conflict) {
		t.Errorf("a second loan of one connection: %v", err)
	}
	if err := back(first); err != nil {
		t.Error(err)
	}
	if err := back(first); !errors.Is(err, bailey.NotFound) {
		t.Errorf("returned twice: %v", err)
	}
	if _, err := h.client.requestLoan(first, l); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "was used") {
		t.Errorf("had again: %v", err)
	}
}

// TestLeftOver checks that the loans of a killed broker are ended at the next start.
func TestLeftOver(t *testing.T) {
	m := newMintery()
	h := withMintery(t, m, "1h")
	h.end()
	h.config.Step = nil
	s, err := New(h.config)
	if err != nil {
		t.Fatal(err)
	}
	e := event{Event: "lend", Leases: []entry{{ID: "l-x", Name: "free", Mint: "mint-x"}, {ID: "l-y", Name: "gone", Mint: "mint-y"}}}
	if err := s.journal.appendEvent(e, true); err != nil {
		t.Fatal(err)
	}
	s.Close()
	h.start(false)
	if id := m.next(t); id != "mint-x" {
		t.Errorf("%s was revoked", id)
	}
	if hello, err := h.client.Hello(t.Context()); err != nil || hello.Open != 0 {
		t.Errorf("%+v %v", hello, err)
	}
}

// TestJournalFails checks that if a loan cannot be written to the journal, no value is sent, the issued credential is
// revoked, and nothing is lent any more.
func TestJournalFails(t *testing.T) {
	m := newMintery()
	h := withMintery(t, m, "1h")
	h.s.journal.f.Close()
	for range 2 {
		h.refused("no journal", loanOf("", nil, "free"), bailey.Unavailable, "journal")
		m.next(t)
	}
}

// TestPanicShowsNothing checks that if a source panics with the value on its stack, no answer, log or trace contains
// the value, and the broker continues.
func TestPanicShowsNothing(t *testing.T) {
	var log bytes.Buffer
	m := newMintery()
	m.crash = true
	h := withMintery(t, m, "1m")
	h.end()
	h.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	h.start(false)
	h.refused("a broken source", loanOf("", nil, "free"), bailey.Internal, "broke")
	lease := h.lend(loanOf("", nil, "other"))
	lease.Return()
	h.end()
	if !strings.Contains(log.String(), "the broker failed") || !strings.Contains(log.String(), "Mint") {
		t.Errorf("the log does not say where: %s", log.String())
	}
	shown(t, "the log", log.String())
	shown(t, "the journal", h.journal())
}

// TestErrorsOfSources checks that the error of a source reaches the caller unchanged and contains no value.
func TestErrorsOfSources(t *testing.T) {
	m := newMintery()
	m.fail = unavailableError(nil, "cure", "the issuer is away")
	h := withMintery(t, m, "1m")
	h.refused("a source that fails", loanOf("", nil, "free"), bailey.Unavailable, "the issuer is away")
}
