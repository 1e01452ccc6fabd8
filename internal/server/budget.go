package server

import (
	"context"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
)

func (s *Server) budget(context.Context, localapi.Query, bailey.Call) (any, error) {
	return apitype.Spendings{Budgets: s.budgets.State()}, nil
}

// recallPatience limits how long a starting gateway makes clients wait for the past usage of budgets. After that it
// serves them, but denies the calls that a budget limits until the usage is known. A million calls take minutes to
// read, and the kill switch must not wait for them.
const recallPatience = time.Second

// holdBudgets blocks every call that a budget limits until rememberBudgets is done.
func (s *Server) holdBudgets() {
	if s.budgets.Memory() > 0 {
		s.budgets.Hold(&bailey.Error{Kind: bailey.Unavailable, Message: "what was used of the budgets is still read from the ledger", Hint: "call again in a minute"})
	}
}

// recallBudgets reads the past usage, then unblocks the calls. If it fails, they stay blocked. An operator can still
// apply a policy without budgets.
func (s *Server) recallBudgets(ctx context.Context) {
	err := s.rememberBudgets(ctx)
	if s.budgets.Hold(err); err != nil {
		s.Log.Error("what was used of the budgets is not known", "err", err)
	}
}

// rememberBudgets counts the calls that other gateways handled earlier, as far back as a budget looks.
func (s *Server) rememberBudgets(ctx context.Context) error {
	memory := s.budgets.Memory()
	if memory == 0 {
		return nil
	}
	f := receipts.Filter{Since: time.Now().Add(-memory), Until: s.since, Oldest: true, Limit: receipts.MaxLimit}
	for {
		page, err := s.index.Find(ctx, f)
		if err != nil {
			return &bailey.Error{Kind: bailey.Unavailable, Message: "what was used of the budgets cannot be read from the ledger", Err: err, Hint: "bailey audit verify"}
		}
		for _, r := range page.Records {
			in, o := r.Intent, r.Outcome
			if f.After = r.Seq; o == nil || o.Executed != nil && !*o.Executed {
				continue
			}
			s.budgets.Remember(bailey.Request{Capability: in.Capability, Principal: bailey.Principal{Agent: in.Agent, Person: in.Person}}, in.StartedAt,
				gate.Use{Wall: time.Duration(o.RanMillis) * time.Millisecond, CPU: time.Duration(o.CPUMillis) * time.Millisecond, Output: o.StdoutBytes + o.StderrBytes})
		}
		if !page.More {
			return nil
		}
	}
}
