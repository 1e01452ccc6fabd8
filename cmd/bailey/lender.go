package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/gateway"
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
func (s *stack) broker() broker.Client {
	if s.desk == nil {
		return broker.Client{}
	}
	return clientOf(s.desk.settings.Applied().Broker)
}

func clientOf(b *gateway.Broker) broker.Client {
	if b == nil {
		return broker.Client{}
	}
	return broker.Client{Socket: b.Socket, UID: b.UID}
}

// brokerChange describes a change of the broker, for the difference that init shows.
func brokerChange(old, now *gateway.Broker) string {
	words := difference(brokerLine(old), brokerLine(now))
	if now != nil && now.UID == os.Geteuid() {
		words += "  ! " + sameUser + "\n"
	}
	return words
}

func brokerLine(b *gateway.Broker) string {
	if b == nil {
		return ""
	}
	line := fmt.Sprintf("credentials come from the broker of uid %d at %s\n", b.UID, b.Socket)
	if b.CheckpointKey {
		line += fmt.Sprintf("the ledger's checkpoints are signed by a key of the broker of uid %d at %s\n", b.UID, b.Socket)
	}
	return line
}

// sameUser is the warning for a broker that runs under the same uid as the gateway.
const sameUser = "the broker runs under the gateway's own uid: this wall is absent, and whatever runs as this user can take what the broker lends"

// brokerStatus is the state of the broker, as `bailey status` shows it.
type brokerStatus struct {
	Socket  string   `json:"socket"`
	UID     int      `json:"uid"`
	Running bool     `json:"running"`
	SameUID bool     `json:"sameUid"`           // broker and gateway are not isolated from each other
	Changed bool     `json:"changed,omitempty"` // its table file differs from the table in use
	Leases  []string `json:"leases,omitempty"`  // the credentials that it lends, one line each
	// [keyAtBroker] or [keyAtHome], if the settings place the log's key at the broker
	Key   string `json:"checkpointKey,omitempty"`
	Fault string `json:"fault,omitempty"`
	Cure  string `json:"cure,omitempty"`
}

// helloPatience limits how long a query waits for the broker.
const helloPatience = 2 * time.Second

// askBroker asks the broker for its state. It returns nil if b is nil.
func askBroker(ctx context.Context, b *gateway.Broker) *brokerStatus {
	if b == nil {
		return nil
	}
	s := &brokerStatus{Socket: b.Socket, UID: b.UID, SameUID: b.UID == os.Geteuid()}
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

func (b *brokerStatus) words() string {
	text := fmt.Sprintf("uid %d at %s, ", b.UID, b.Socket)
	if !b.Running {
		return text + "UNREACHABLE: " + b.Fault + "; " + b.Cure
	}
	text += fmt.Sprintf("lends %d credentials", len(b.Leases))
	if b.Changed {
		text += "; its broker.yaml is not what it uses: bailey-broker apply"
	}
	switch b.Key {
	case keyAtBroker:
		text += "; it signs the ledger's checkpoints"
	case keyAtHome:
		text += "; " + keyStays
	}
	if b.SameUID {
		text += "; " + sameUser
	}
	return text
}

// examineBroker returns the doctor's finding about the broker that the running gateway uses.
func examineBroker(s status) []finding {
	const name, tried = "broker", "asked it what it is"
	b := s.Broker
	switch {
	case !s.Running:
		return nil
	case b == nil:
		return []finding{{name, info, "settings.yaml names none, so nothing can be lent", ""}}
	case !b.Running:
		return []finding{{name, missing, tried + ": " + b.Fault, b.Cure}}
	case b.Changed:
		return []finding{{name, warning, tried + ": its broker.yaml is not what it uses", "bailey-broker apply, as its own user, shows the difference"}}
	case b.Key == keyAtHome:
		return []finding{{name, warning, "looked for the log's key: " + keyStays, "bailey audit key --rotate has one of the broker's follow it"}}
	case b.SameUID:
		return []finding{{name, warning, tried + ": " + sameUser, "run it as a user of its own: docs/broker.md"}}
	}
	return []finding{{name, good, tried + ": " + b.words(), ""}}
}
