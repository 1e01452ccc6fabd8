package apitype

import (
	"fmt"
)

// Finding is the result of one test of the doctor.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Tried string `json:"tried"`          // the test and its result
	Cure  string `json:"cure,omitempty"` // empty only if the state is ok or info
}

// State is the severity of a finding. Only missing sets the exit code to 1, because calls fail without it.
type State string

const (
	Good    State = "ok"
	Info    State = "info" // a matter of choice, for example a missing tool
	Warning State = "warning"
	Missing State = "missing"
)

// SameUser is the warning for a broker that runs under the same uid as the gateway.
const SameUser = "the broker runs under the gateway's own uid: this wall is absent, and whatever runs as this user can take what the broker lends"

// BrokerStatus is the state of the broker, as `bailey status` shows it.
type BrokerStatus struct {
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

// Summary returns the state of the broker on one line. The caller must escape it for a terminal.
func (b *BrokerStatus) Summary() string {
	text := fmt.Sprintf("uid %d at %s, ", b.UID, b.Socket)
	if !b.Running {
		return text + "UNREACHABLE: " + b.Fault + "; " + b.Cure
	}
	text += fmt.Sprintf("lends %d credentials", len(b.Leases))
	if b.Changed {
		text += "; its broker.yaml is not what it uses: bailey-broker apply"
	}
	switch b.Key {
	case KeyAtBroker:
		text += "; it signs the ledger's checkpoints"
	case KeyAtHome:
		text += "; " + keyStays
	}
	if b.SameUID {
		text += "; " + SameUser
	}
	return text
}

// ExamineBroker returns the doctor's finding about the broker that the running gateway uses.
func ExamineBroker(s Status) []Finding {
	const name, tried = "broker", "asked it what it is"
	b := s.Broker
	switch {
	case !s.Running:
		return nil
	case b == nil:
		return []Finding{{name, Info, "settings.yaml names none, so nothing can be lent", ""}}
	case !b.Running:
		return []Finding{{name, Missing, tried + ": " + b.Fault, b.Cure}}
	case b.Changed:
		return []Finding{{name, Warning, tried + ": its broker.yaml is not what it uses",
			"bailey-broker apply, as its own user, shows the difference"}}
	case b.Key == KeyAtHome:
		return []Finding{{name, Warning, "looked for the log's key: " + keyStays,
			"bailey audit key --rotate has one of the broker's follow it"}}
	case b.SameUID:
		return []Finding{{name, Warning, tried + ": " + SameUser, "run it as a user of its own: docs/broker.md"}}
	}
	return []Finding{{name, Good, tried + ": " + b.Summary(), ""}}
}

// If the platform has no cage (jail.Bare; never on Linux), every start of an interface or a gateway prints a warning.
// status and doctor report it too, and a separate rule must permit calls that run without a cage.

const Disabled = "SANDBOX DISABLED: this platform has no cage; calls are held by policy alone"

// BareFinding returns the finding of the doctor. It is only a warning, because calls do run.
func BareFinding() Finding {
	return Finding{"cage", Warning, Disabled,
		"use Linux, or a Linux virtual machine, for what reads other people's files"}
}
