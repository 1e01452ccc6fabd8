package server

import (
	"cmp"
	"context"
	"os"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
)

// lender borrows credentials from the broker that the settings name at the time of the call.
type lender struct{ at func() broker.Client }

func (l lender) Scope(ctx context.Context, wants []bailey.Want) ([]bailey.LeaseScope, error) {
	return l.at().Scope(ctx, wants)
}

func (l lender) Lend(ctx context.Context, loan bailey.Loan) (bailey.Lease, error) {
	return l.at().Lend(ctx, loan)
}

// broker returns a client for the configured broker. Without a broker, the client lends nothing.
func (s *Server) broker() broker.Client {
	if s.desk == nil {
		return broker.Client{}
	}
	return clientOf(s.desk.settings.Applied().Broker)
}

func clientOf(b *settings.Broker) broker.Client {
	if b == nil {
		return broker.Client{}
	}
	return broker.Client{Socket: b.Socket, UID: b.UID}
}

// helloPatience limits how long a query waits for the broker.
const helloPatience = 2 * time.Second

// askBroker asks the broker for its state. It returns nil if b is nil.
func askBroker(ctx context.Context, b *settings.Broker) *apitype.BrokerStatus {
	if b == nil {
		return nil
	}
	s := &apitype.BrokerStatus{Socket: b.Socket, UID: b.UID, SameUID: b.UID == os.Geteuid()}
	c := clientOf(b)
	c.Patience = helloPatience
	h, err := c.Hello(ctx)
	if err != nil {
		s.Fault, s.Cure = err.Error(), cmp.Or(bailey.HintOf(err), "docs/broker.md")
		return s
	}
	s.Running, s.Changed, s.Leases = true, h.Changed, h.Leases
	return s
}
