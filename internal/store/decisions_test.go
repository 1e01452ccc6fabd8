package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"bailey"
	"bailey/internal/store"
)

// TestQuestionsOfHost: a host has a limited number of open questions, the list follows the server's clock, and times
// that were stored can always be shown.
func TestQuestionsOfHost(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		_, shop := setUp(t, s)
		var hosts []store.Host
		for _, name := range []string{"one", "two"} {
			h, err := s.AddHost(t.Context(), store.Host{Organisation: shop.ID, Name: name, Kind: store.Gateway,
				Expires: c.Now().Add(time.Hour)}, store.Hash(name))
			if err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, h)
		}
		ask := func(tx *store.Tx, h store.Host, id string, at time.Time) error {
			c.advance(time.Millisecond)
			return s.AskQuestion(t.Context(), tx, h, store.Question{ID: id, Asked: at, Expires: at.Add(time.Hour),
				Body: []byte("{}")})
		}
		err := s.Change(t.Context(), func(tx *store.Tx) error {
			for i := range 300 {
				if err := ask(tx, hosts[0], fmt.Sprint("a-", i), c.Now()); err != nil {
					return err
				}
			}
			wantKind(t, ask(tx, hosts[0], "a-more", c.Now()), bailey.Invalid)
			if err := ask(tx, hosts[0], "a-0", c.Now()); err != nil { // it is known
				return err
			}
			if err := ask(tx, hosts[1], "a-other", time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
				return err
			}
			return s.DecideQuestion(t.Context(), tx, hosts[0].ID, "a-0", store.QuestionDenied, "")
		})
		if err == nil {
			err = s.Change(t.Context(), func(tx *store.Tx) error {
				return ask(tx, hosts[0], "a-last", c.Now().Add(-time.Minute))
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Questions(t.Context(), shop.ID, store.QuestionFilter{})
		if err != nil || len(all) != 302 || all[0].ID != "a-last" || all[1].ID != "a-other" || all[2].ID != "a-299" {
			t.Fatalf("%d questions, %v: %+v", len(all), err, all[:min(3, len(all))])
		}
		if text, err := json.Marshal(all); err != nil {
			t.Errorf("the list has no form in JSON: %v, %.80s", err, text)
		}
	})
}

// TestWaitingCommands: a host that connects gets a limited number of commands, the oldest first.
func TestWaitingCommands(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Now()}
	s := openStore(t, store.Config{URL: newDatabase(t, "sqlite"), Now: c.Now})
	_, shop := setUp(t, s)
	h, err := s.AddHost(t.Context(), store.Host{Organisation: shop.ID, Name: "one", Kind: store.Gateway,
		Expires: c.Now().Add(time.Hour)}, store.Hash("one"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 201 {
		c.advance(time.Millisecond)
		if err := s.AddCommand(t.Context(), shop.ID, store.Command{ID: fmt.Sprintf("c-%03d", i), Host: h.ID, Kind: "kill",
			Deadline: c.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.WaitingCommands(t.Context(), h.ID); err != nil || len(all) != 200 || all[0].ID != "c-000" {
		t.Errorf("%d commands, %v", len(all), err)
	}
}
