package store_test

import (
	"testing"

	"bailey"
	"bailey/internal/store"
)

// TestPush: a browser has one subscription, of the person who has signed in there last; the members of an organisation are
// told, and the key of web push is made once and sealed anew with the other secrets.
func TestPush(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, _ *clock) {
		ann, shop := setUp(t, s)
		add := func(account, endpoint string) store.PushSubscription {
			t.Helper()
			p, err := s.AddPushSubscription(t.Context(), store.PushSubscription{Account: account, Endpoint: endpoint, P256DH: "k", Auth: "a"})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		add(ann.ID, "https://a.example/1")
		again := add(ann.ID, "https://a.example/1")
		all, err := s.PushSubscriptionsOf(t.Context(), shop.ID)
		if err != nil || len(all) != 1 || all[0].ID != again.ID || all[0].Endpoint != "https://a.example/1" || all[0].P256DH != "k" {
			t.Errorf("%+v, %v", all, err)
		}
		if others, err := s.PushSubscriptionsOf(t.Context(), "o-none"); err != nil || len(others) != 0 {
			t.Errorf("%+v, %v", others, err)
		}
		wantKind(t, s.RemovePushSubscription(t.Context(), "u-none", again.ID), bailey.NotFound)
		if err := s.RemovePushSubscription(t.Context(), ann.ID, again.ID); err != nil {
			t.Error(err)
		}
		if key, err := s.PushKey(t.Context()); key != "" || err != nil {
			t.Errorf("%q, %v", key, err)
		}
		for _, sealed := range []string{"first", "second"} {
			if key, err := s.AddPushKey(t.Context(), sealed); key != "first" || err != nil {
				t.Errorf("%q, %v", key, err)
			}
		}
		n, err := s.ResealSecrets(t.Context(), func(name, sealed string) (string, error) { return name + " " + sealed, nil })
		if key, _ := s.PushKey(t.Context()); n != 1 || err != nil || key != store.PushKeySealedAs+" first" {
			t.Errorf("%d, %v, %q", n, err, key)
		}
	})
}
