package store_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/store"
)

// addLedger begins the copy of a ledger of a new host.
func addLedger(t *testing.T, s *store.Store, organisation, name string) string {
	t.Helper()
	h, err := s.AddHost(t.Context(), store.Host{Organisation: organisation, Name: name, Kind: store.Gateway,
		Expires: time.Now().Add(time.Hour)}, store.Hash(name))
	if err == nil {
		_, err = s.BeginLedger(t.Context(), h, "origin of "+name, "key")
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.ID
}

// TestReceipts: lists are filtered by every field, paged by key in both directions without a gap, and a search by text
// looks at a limited number of receipts and says how far it came.
func TestReceipts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store, c *clock) {
		ctx := t.Context()
		_, shop := setUp(t, s)
		hosts := []string{addLedger(t, s, shop.ID, "one"), addLedger(t, s, shop.ID, "two")}
		begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		err := s.Change(ctx, func(tx *store.Tx) error {
			for i := range 40 {
				r := store.Receipt{Host: hosts[i%2], Seq: uint64(i + 1), Receipt: fmt.Sprint("r-", i), Status: "open",
					Started: begin.Add(time.Duration(i/4) * time.Minute), Agent: fmt.Sprint("agent-", i%4), Person: "ann",
					Session: "s-1", Capability: "git.status"}
				if err := s.AddReceipt(ctx, tx, shop.ID, r, fmt.Sprintf("file_%02d%%\n", i)); err != nil {
					return err
				}
				if err := s.AddReceipt(ctx, tx, shop.ID, r, "again"); err != nil {
					return err
				}
				e := store.Ending{Seq: uint64(1000 + i), Status: "ok", Decision: []string{"allow", "deny"}[i%2], Denied: i%2 == 1,
					Ended: r.Started.Add(time.Second), Search: "because\n", Models: 1, InputTokens: 10, MicroUSD: 5}
				if i == 39 {
					continue
				}
				for range 2 { // the second one is ignored
					if err := s.EndReceipt(ctx, tx, r.Host, r.Receipt, e); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for f, n := range map[store.ReceiptFilter]int{{}: 40, {Host: hosts[0]}: 20, {Decision: "deny"}: 19, {Decision: "allow"}: 20,
			{Status: "open"}: 1, {Agent: "agent-2", Decision: "allow"}: 10, {Until: begin.Add(time.Minute)}: 4,
			{Since: begin.Add(9 * time.Minute)}: 4, {Text: "FILE_0", Window: 100}: 10, {Text: "e_0", Window: 100}: 10,
			{Text: "%", Window: 100}: 40, {Text: "_0_", Window: 100}: 0, {Text: "file_03", Window: 10}: 0,
			{Text: "because", Window: 10}: 9, {Text: "again", Window: 100}: 0} {
			f.Limit = 100
			all, err := s.Receipts(ctx, shop.ID, f)
			if err != nil || len(all) != n {
				t.Errorf("%+v: %d receipts, %v, want %d", f, len(all), err, n)
			}
		}
		for _, oldest := range []bool{false, true} {
			f := store.ReceiptFilter{Limit: 7, Oldest: oldest}
			var ids []string
			for {
				some, err := s.Receipts(ctx, shop.ID, f)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range some {
					ids = append(ids, r.Receipt)
					f.BeforeStarted, f.BeforeHost, f.BeforeSeq = r.Started, r.Host, r.Seq
				}
				if len(some) < f.Limit {
					break
				}
			}
			if n := len(slices.Compact(slices.Sorted(slices.Values(ids)))); n != 40 || len(ids) != 40 {
				t.Errorf("oldest first %v: %d of %d receipts", oldest, n, len(ids))
			}
		}
		end, more, err := s.ReceiptsEnd(ctx, shop.ID, store.ReceiptFilter{Text: "x", Window: 10})
		if err != nil || !more || !end.Started.Equal(begin.Add(7*time.Minute)) {
			t.Errorf("%+v, %v, %v", end, more, err)
		}
		if _, more, err := s.ReceiptsEnd(ctx, shop.ID, store.ReceiptFilter{Text: "x", Window: 40}); err != nil || more {
			t.Errorf("a search of all says that there is more: %v", err)
		}
		sessions, err := s.AgentSessions(ctx, shop.ID, store.SessionFilter{Limit: 10})
		if err != nil || len(sessions) != 2 {
			t.Fatalf("%+v, %v", sessions, err)
		}
		for _, n := range sessions {
			want := store.AgentSession{Host: n.Host, HostName: n.HostName, Session: "s-1", Agent: n.Agent, Person: "ann",
				Started: begin, Last: n.Last, Calls: 20, Ended: 20, Models: 20, InputTokens: 200, MicroUSD: 100}
			if n.HostName == "two" {
				want.Ended, want.Denied, want.Models, want.InputTokens, want.MicroUSD = 19, 19, 19, 190, 95
			}
			if n != want {
				t.Errorf("%+v\nwant %+v", n, want)
			}
		}
		next, err := s.AgentSessions(ctx, shop.ID, store.SessionFilter{Limit: 10, BeforeLast: sessions[0].Last,
			BeforeHost: sessions[0].Host, BeforeSession: sessions[0].Session})
		if err != nil || len(next) != 1 || next[0].Host != sessions[1].Host {
			t.Errorf("%+v, %v", next, err)
		}
	})
}

// TestPlansOfQueries: no list of receipts or sessions reads a whole table.
func TestPlansOfQueries(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "server.db")
	s := openStore(t, store.Config{URL: name})
	for _, f := range []store.ReceiptFilter{{}, {Host: "h"}, {Agent: "a"}, {Session: "s"}, {Capability: "c"}, {Decision: "deny"},
		{Status: "ok"}, {Receipt: "r"}, {Since: time.Now()}, {BeforeHost: "h", BeforeStarted: time.Now(), BeforeSeq: 3},
		{Oldest: true, Session: "s", Host: "h"}, {Text: "x", Window: 1000}} {
		f.Limit = 50
		plan, err := s.ExplainReceipts(context.Background(), "o", f)
		if err != nil {
			t.Fatal(err)
		}
		index := map[bool]string{f.Host != "" && f.Session == "": "receipts_host (organisation=? AND host=?)", f.Agent != "": "receipts_agent",
			f.Decision != "": "receipts_decision", f.Status != "": "receipts_status", f.Session != "": "receipts_session"}[true]
		if !strings.Contains(plan, "SEARCH r USING INDEX "+cmp.Or(index, "receipts_")) {
			t.Errorf("%+v\n%s", f, plan)
		}
	}
}

// TestUnreadReceipts: receipts of an older schema get their details later, once, and count in their sessions.
func TestUnreadReceipts(t *testing.T) {
	t.Parallel()
	config := store.Config{URL: filepath.Join(t.TempDir(), "server.db")}
	err := store.MigrateTo(t.Context(), config, 21,
		"INSERT INTO organisations (id, name, created) VALUES ('o', 'Shop', 1)",
		"INSERT INTO ledgers (host, organisation, name, origin, first_key, keys, size, head, edge, segment, checkpoint, signed, "+
			"forked) VALUES ('h', 'o', 'castle', '', '', '[]', 2, '', '[]', 1, '', 0, 0)",
		"INSERT INTO entries (host, seq, segment, kind, line) VALUES ('h', 1, 1, 'intent', 'the intent'), "+
			"('h', 2, 1, 'outcome', 'the outcome')",
		"INSERT INTO receipts (host, seq, organisation, receipt, started, outcome, status, agent, session, capability) VALUES "+
			"('h', 1, 'o', 'r-1', 1000000, 2, 'ok', 'a', 's', 'c'), ('h', 3, 'o', 'r-2', 1000000, 0, 'open', 'a', 's', 'c')")
	if err != nil {
		t.Fatal(err)
	}
	s := openStore(t, config)
	unread, err := s.UnreadReceipts(t.Context(), 10)
	if err != nil || len(unread) != 2 || unread[0].Intent != "the intent" || unread[0].Outcome != "the outcome" {
		t.Fatalf("%+v, %v", unread, err)
	}
	err = s.Change(t.Context(), func(tx *store.Tx) error {
		if err := s.EndReceipt(t.Context(), tx, "h", "r-2", store.Ending{Seq: 4, Status: "ok"}); err != nil {
			return err
		}
		for range 2 {
			for _, u := range unread {
				if err := s.ReadReceipt(t.Context(), tx, u, "words", store.Ending{Decision: "deny", Denied: true}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.AgentSessions(t.Context(), "o", store.SessionFilter{Limit: 10})
	if err != nil || len(all) != 1 || all[0].Calls != 1 || all[0].Denied != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if unread, err := s.UnreadReceipts(t.Context(), 10); err != nil || len(unread) != 1 || unread[0].OutcomeSeq != 4 {
		t.Errorf("the receipt that ended meanwhile is not read again: %+v, %v", unread, err)
	}
}
