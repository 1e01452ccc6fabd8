package server

import (
	"context"
	"os"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/settings"
)

// status is a query, answered inside the gateway.
func (s *Server) status(ctx context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	at, err := s.ledger.Stand()
	if err != nil {
		return nil, err
	}
	frail, err := ledger.Durability(s.home.Ledger())
	if err != nil {
		return nil, err
	}
	out := apitype.Status{
		Running: true, Home: string(s.home), Policy: s.Rules.Engine().Digest(), Packs: s.packs(),
		Gateway: &apitype.GatewayStatus{PID: os.Getpid(), Version: apitype.Version, Protocol: localapi.Protocol, Since: s.since.UTC()},
		Ledger: &apitype.LedgerStatus{Dir: s.home.Ledger(), OK: at.Bad == nil, Verified: at.Verified, Segments: at.Segments, Entries: at.Entries,
			Open: at.Open, Head: at.Head.String(), Durable: frail == "", Frail: frail},
		Cage: NewCageStatus(s.cages.Diagnose(ctx)),
	}
	if s.Bare {
		out.Cage = bareCage()
	}
	out.Broker = askBroker(ctx, s.desk.settings.Applied().Broker)
	if out.Broker != nil {
		out.Broker.Key = s.keyring(s.home).where()
	}
	out.Redaction = s.desk.settings.Applied().Redaction
	s.Rules.status(&out)
	out.Hooks = s.hooks.book.Status()
	_, out.Packed = packstore.LoadInstalled(s.home, s.packed.now())
	out.Profile = ProfileStatus(s.shelf.profiles)
	out.Notify = s.notifyState()
	if k := s.kill.State(); k.On() {
		out.Killed = &k
	}
	if n, until := s.kept.Count(); n > 0 {
		out.Kept = &apitype.KeptStatus{Sessions: n, Until: until}
	}
	out.Asked = newAskedStatus(s.Queue)
	if st, err := s.desk.settings.State(""); err != nil || st.Changed {
		out.Settings = settings.FileName + " is not what was applied, and the next gateway will not use it"
	}
	out.Calls, out.Sessions = s.live.Now()
	out.Agents = apitype.NewAgentStatus(out.Sessions)
	if err := s.workspaces.Fit(q.Dir); err != nil {
		out.Workspace = apitype.WithHint(err)
	}
	return out, nil
}

// NewCageStatus returns the kind "full" if every layer of an ordinary call works, and "landlock" if every layer of the
// reduced cage works. A missing proc-private layer is ignored, because only some manifests need a /proc. So is a
// missing cgroup layer, because the watcher replaces it.
func NewCageStatus(layers []jail.Layer) *apitype.CageStatus {
	c := &apitype.CageStatus{Kind: "full", Layers: []string{}}
	for _, l := range layers {
		if l.Err == nil {
			c.Layers = append(c.Layers, l.Name)
			continue
		}
		c.Problems = append(c.Problems, apitype.WithHint(l.Err))
		switch {
		case l.Name == "full" && c.Kind != "": // the layer full comes first
			c.Kind = "landlock"
		case l.Name != "proc-private" && l.Name != "cgroup":
			c.Kind = ""
		}
	}
	return c
}
