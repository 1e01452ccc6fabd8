package server

import (
	"log/slog"

	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
)

// StandIn sets the fields that a gateway of this home would report about its policy.
func StandIn(home localapi.Home, s *apitype.Status) error {
	l, err := Replayed(home)
	if err != nil {
		return err
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return err
	}
	r, err := openPolicyStore(&policyStore{home: home, catalog: catalog, meter: gateway.NewBudgets(nil), log: slog.New(slog.DiscardHandler)}, l.Policy)
	if err != nil {
		return err
	}
	r.status(s)
	if l.Killed.On() {
		s.Killed = &l.Killed
	}
	return nil
}
