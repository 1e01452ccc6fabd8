package direct

import (
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/server"
)

// examinePacks returns the doctor's findings about packs and trusted keys that differ from the ledger. A pack that
// cannot be loaded has the state missing, because its calls fail.
func examinePacks(home localapi.Home, s apitype.Status) (list []apitype.Finding) {
	const name = "packs"
	found := s.Packed
	if !s.Running && ledger.Begun(home.Ledger()) {
		known, err := server.Replayed(home)
		if err != nil {
			return []apitype.Finding{wrong(name, apitype.Missing, "read what is installed", err)}
		}
		_, found = packstore.LoadInstalled(home, known.Packs)
	}
	for _, f := range found {
		state := apitype.Warning
		if f.Pack != "" {
			state = apitype.Missing
		}
		list = append(list, apitype.Finding{Name: name, State: state, Tried: f.Text, Cure: f.Cure})
	}
	return list
}
