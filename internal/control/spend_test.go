package control_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// ask records a request to a model with its cost.
func (b *book) ask(agent, person string, use bailey.ModelUse) {
	b.t.Helper()
	id := bailey.NewReceiptID()
	seal, err := b.log.Open(b.t.Context(), bailey.Intent{Receipt: id, Capability: "model.request", Agent: agent, Person: person,
		Host: "castle", Session: "s-1", Door: "test", StartedAt: time.Now().UTC()})
	if err == nil {
		err = seal(bailey.Outcome{Receipt: id, Status: bailey.OK, Model: &use})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestSpendAndBudgets: the server sums the cost of models from the receipts of all gateways, each once, and tells every
// gateway what the others have spent of a budget.
func TestSpendAndBudgets(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, f *fixture) {
		owner, shop := f.setUp(t)
		base := "/api/v1/organisations/" + shop
		for _, wrong := range []object{{"period": "day"}, {"period": "year", "microUsd": 1}, {"period": "day", "microUsd": -1}} {
			owner.wantStatus(http.StatusUnprocessableEntity, "POST", base+"/budgets", wrong)
		}
		set := want[store.Budget](owner, "POST", base+"/budgets", object{"period": "month", "microUsd": 1000, "agent": "coder"})
		spender, token := addGateway(owner, shop, "spender")
		b := newBook(t)
		w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()})
		if m := w.hear().Command; m == nil || m.Kind != fleet.Budget {
			t.Fatalf("when it connects: %+v", m)
		}
		b.ask("coder", "ann", bailey.ModelUse{InputTokens: 10, CachedTokens: 5, OutputTokens: 3, MicroUSD: 200})
		b.ask("coder", "ann", bailey.ModelUse{InputTokens: 1, MicroUSD: 100})
		b.ask("other", "ben", bailey.ModelUse{InputTokens: 7, MicroUSD: 50})
		b.ask("liar", "ben", bailey.ModelUse{InputTokens: -7, MicroUSD: 1 << 62})
		b.call("coder")
		batch := b.after(0)
		w.say(&fleet.Frame{Receipts: batch})
		if c := w.hear().Cosigned; c == nil || c.Forked {
			t.Fatalf("%+v", c)
		}
		type spend struct {
			Items []struct {
				store.Spending
				HostName string
			}
			Total fleet.SpentSum
		}
		got := want[spend](owner, "GET", base+"/spend", nil)
		if len(got.Items) != 3 || got.Total.InputTokens != 23 || got.Total.OutputTokens != 3 || got.Total.MicroUSD != 350+1e12 {
			t.Errorf("%+v", got)
		}
		for _, i := range got.Items {
			if i.Agent == "coder" && (i.Calls != 2 || i.MicroUSD != 300 || i.Person != "ann" || i.HostName != "spender" || i.Host != spender) {
				t.Errorf("%+v", i)
			}
		}
		told := make(chan fleet.TeamBudgets, 10)
		f.connectGateway(t, owner.addGateway(shop, "other"), t.TempDir(), fleet.Handlers{
			fleet.Budget: func(_ context.Context, body []byte) ([]byte, error) {
				var o fleet.TeamBudgets
				err := json.Unmarshal(body, &o)
				told <- o
				return []byte("{}"), err
			}})
		o := <-told
		if len(o.Budgets) != 1 || o.Budgets[0].ID != set.ID || o.Budgets[0].MicroUSD != 1000 || o.Budgets[0].Elsewhere.MicroUSD != 300 {
			t.Errorf("another gateway is told %+v", o)
		}
		want[object](owner, "DELETE", base+"/budgets/"+set.ID, nil)
		if after := <-told; len(after.Budgets) != 0 || after.Revision <= o.Revision {
			t.Errorf("after its end: %+v", after)
		}
	})
}
