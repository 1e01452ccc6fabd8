package main

import (
	"fmt"
	"log/slog"

	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/wire"
)

// examinePolicy reports whether the policy that was applied last can be used, and whether its files are unchanged. If
// no gateway runs, it loads the policy as the next gateway would.
func examinePolicy(home wire.Home, s status) []finding {
	const name, tried = "policy", "held what was applied last against its files"
	if !s.Running {
		if !ledger.Begun(home.Ledger()) {
			return []finding{{name, good, "nobody applied one: the policy that is built in holds", ""}}
		}
		if err := standIn(home, &s); err != nil {
			return []finding{wrong(name, missing, "loaded what was applied last", err)}
		}
	}
	var found []finding
	if s.Killed != nil {
		found = append(found, finding{"kill switch", missing, killedWords(*s.Killed), "bailey resume, when the reason is gone"})
	}
	switch {
	case s.Fault != "":
		found = append(found, finding{name, missing, s.Fault, "bailey policy check, then bailey policy apply"})
	case s.Drift != "":
		found = append(found, finding{name, warning, tried + ": " + s.Drift, "bailey policy apply shows the difference and applies it; or put the files back"})
	case s.Applied == nil || s.Applied.Dir == "":
		found = append(found, finding{name, good, "nobody applied one: the policy that is built in holds", ""})
	default:
		found = append(found, finding{name, good, fmt.Sprintf("%s: %s of %s", tried, counts(s.Applied.Rules, "rule"), s.Applied.Dir), ""})
	}
	return found
}

// standIn sets the fields that a gateway of this home would report about its policy.
func standIn(home wire.Home, s *status) error {
	l, err := recalled(home)
	if err != nil {
		return err
	}
	catalog, err := builtIn()
	if err != nil {
		return err
	}
	r, err := openRulebook(&rulebook{home: home, catalog: catalog, meter: gateway.NewBudgets(nil), log: slog.New(slog.DiscardHandler)}, l.Policy)
	if err != nil {
		return err
	}
	r.status(s)
	if l.Killed.On() {
		s.Killed = &l.Killed
	}
	return nil
}
