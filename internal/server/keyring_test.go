//go:build linux

package server

import (
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// settle applies settings to the gate, as `bailey init --apply` does.
func (b *brokered) settle(t *testing.T, text string) {
	t.Helper()
	if _, err := b.settings.Apply(t.Context(), b.settings.Digest(), []byte(text), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
}

// settings names the broker that runs as uid. more may request the log key at the broker.
func (b *brokered) settingsText(uid int, more string) string {
	return fmt.Sprintf("broker: {socket: %s, uid: %d%s}\n", filepath.Join(b.dir, "run", "broker.sock"), uid, more)
}

// checked verifies the ledger against a checkpoint, as an auditor with the key does with `audit verify --against`.
func (b *brokered) checked(t *testing.T, signed []byte, key audit.Key) audit.Signed {
	t.Helper()
	r, err := ledger.VerifyAgainst(t.Context(), b.home.Ledger(), audit.Check{Trust: audit.Trust{Keys: []audit.Key{key}}, Seen: [][]byte{signed}})
	if err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	s, err := audit.Trust{Keys: []audit.Key{key}}.Open(signed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCheckpointKeyAtBroker checks a broker with another uid that creates the log key and signs checkpoints. An auditor
// must be able to verify them as usual. The home must contain no key, and the key must not sign a fork, even if the
// gateway's user requests it. If the broker is not reachable, nothing is signed, but calls continue.
func TestCheckpointKeyAtBroker(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "root")
	const uid = 61251
	b := borrowing(t, uid)
	b.settle(t, b.settingsText(uid, ", checkpointKey: true"))
	key, err := b.notary.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := b.notary.Sign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := b.checked(t, first, key)
	if res := b.Calls(t, "demo.free", "/", nil); !res.Executed {
		t.Errorf("%+v", res)
	}
	second, err := b.notary.Sign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now := b.checked(t, second, key); now.Size <= at.Size {
		t.Errorf("%+v after %+v", now, at)
	}
	b.checked(t, first, key)
	if list := (notary.KeyFiles{Dir: b.home.Keys()}).Publics(); len(list) > 0 {
		t.Errorf("the home has keys: %x", list)
	}
	by, err := b.newKeyring(b.home).Find(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	now := b.checked(t, second, key).Checkpoint
	fork, gone, other := now, now, now
	fork.Root[0]++
	gone.Size--
	other.Origin, other.Size = "another", now.Size+1
	for what, c := range map[string]audit.Checkpoint{"a fork": fork, "a smaller size": gone, "another origin": other} {
		if signed, err := by.Sign(nil, []byte(c.Text()), crypto.Hash(0)); signed != nil || bailey.KindOf(err) != bailey.Conflict || bailey.HintOf(err) == "" {
			t.Errorf("%s: %s %v", what, signed, err)
		}
	}
	if _, err := b.rotateCheckpointKey(t.Context(), localapi.None{}, gateway.Caller{Operator: localapi.Env}); bailey.KindOf(err) != bailey.Conflict || !strings.Contains(err.Error(), "cannot be rotated") || bailey.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if made, err := clientOf(b.settings.Applied().Broker).Keys(t.Context()); err != nil || len(made) != 1 {
		t.Errorf("%x %v", made, err)
	}
	s := askBroker(t.Context(), b.settings.Applied().Broker)
	s.Key = b.newKeyring(b.home).keyLocation()
	if s.Key != apitype.KeyAtBroker || !strings.Contains(s.Summary(), "signs the ledger's checkpoints") {
		t.Errorf("%+v", s)
	}
	b.settle(t, b.settingsText(uid, "")) // without this setting there is no key, because the home has none
	if _, err := b.notary.Sign(t.Context()); bailey.KindOf(err) != bailey.NotFound || !strings.Contains(bailey.HintOf(err), "checkpointKey: true") {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
	b.settle(t, b.settingsText(uid, ", checkpointKey: true"))
	b.cmd.Process.Kill()
	b.cmd.Wait()
	if signed, err := b.notary.Sign(t.Context()); signed != nil || bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) == "" {
		t.Errorf("without its broker: %s %v", signed, err)
	}
	if res := b.Calls(t, "fs.read", "/", map[string]any{"path": "/etc/hostname"}); bailey.KindOf(res.Err) == bailey.Unavailable {
		t.Errorf("without its broker no call: %+v", res)
	}
}

// TestCheckpointKeyMoves checks that a key in the home must announce the broker's key, as in any rotation, before
// anything is signed. Then its file is removed, and an auditor who trusts the first key also trusts the next.
func TestCheckpointKeyMoves(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	uid := os.Geteuid()
	b := borrowing(t, uid)
	old, err := b.notary.Key(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := b.notary.Sign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.settle(t, b.settingsText(uid, ", checkpointKey: true"))
	if signed, err := b.notary.Sign(t.Context()); signed != nil && string(signed) != string(before) || bailey.KindOf(err) != bailey.Conflict || !strings.Contains(bailey.HintOf(err), "audit key --rotate") {
		t.Errorf("%s %v", signed, err)
	}
	s := &apitype.BrokerStatus{Running: true, Key: b.newKeyring(b.home).keyLocation()}
	if found := apitype.ExamineBroker(apitype.Status{Running: true, Broker: s}); s.Key != apitype.KeyAtHome || !strings.Contains(s.Summary(), "--rotate") || found[0].State != apitype.Warning {
		t.Errorf("%+v %+v", s, found)
	}
	r, err := b.rotateCheckpointKey(t.Context(), localapi.None{}, gateway.Caller{Operator: localapi.Env})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Old == nil || *r.Old != old || r.Key == old {
		t.Errorf("%+v", r)
	}
	if list := (notary.KeyFiles{Dir: b.home.Keys()}).Publics(); len(list) > 0 {
		t.Errorf("the home has keys: %x", list)
	}
	after, err := b.notary.Sign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (audit.Trust{Keys: []audit.Key{r.Key}}).Open(after); err != nil {
		t.Error(err)
	}
	check := audit.Check{Trust: audit.Trust{Keys: []audit.Key{old}}, Seen: [][]byte{before, after}}
	if rep, err := ledger.VerifyAgainst(t.Context(), b.home.Ledger(), check); err != nil || !rep.OK {
		t.Errorf("%+v %v", rep, err)
	}
}
