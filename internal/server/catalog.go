package server

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/settings"
	"bailey/internal/toolsearch"
	"bailey/pack"
)

// basePack is active in every profile. It describes the actions of agents themselves, such as running a shell command;
// without it a hook could only deny them.
const basePack = "base"

// activeCatalog holds the callable capabilities: those of all packs, limited by the profiles in use. It is the catalog of the
// gate.
type activeCatalog struct {
	all       atomic.Pointer[pack.Catalog]
	profiles  *gateway.Profiles
	installed func(command string) bool
	image     func(pack string) string // for machines of its calls, or ""
	noBroker  func() bool              // nil: calls that can do without a credential get one anyway
}

func newShelf(c *pack.Catalog, p *gateway.Profiles, installed func(string) bool) *activeCatalog {
	s := &activeCatalog{profiles: p, installed: installed}
	s.all.Store(c)
	return s
}

// useCatalog puts other packs into use, from the next call on, after first has recorded the reason. The policy in force must
// load with them.
func (s *Server) useCatalog(c *pack.Catalog, first func() error) error {
	if err := s.Rules.Stock(c, first); err != nil {
		return err
	}
	s.shelf.all.Store(c)
	return nil
}

// Catalog returns the capabilities of all packs, even if no profile in use contains them, because rules may refer to
// them.
func (s *activeCatalog) Catalog() *pack.Catalog { return s.all.Load() }

// Lookup returns a callable capability, with the bindings of the profiles in use.
func (s *activeCatalog) Lookup(id bailey.CapabilityID) (*pack.Capability, error) {
	m, err := s.Catalog().Lookup(id)
	if err != nil {
		return nil, err
	}
	stack := s.profiles.InForce()
	if err := admitCapability(stack, m); err != nil {
		return nil, err
	}
	if s.noBroker != nil && s.noBroker() {
		m = m.WithoutBroker()
	}
	return bindProfiles(stack, m), nil
}

func admitCapability(stack settings.Stack, m *pack.Capability) error {
	if m.Pack == basePack {
		return stack.Fault()
	}
	return stack.Admit(m.ID, m.Pack)
}

func bindProfiles(stack settings.Stack, m *pack.Capability) *pack.Capability {
	if len(stack.Profiles) == 0 {
		return m
	}
	return m.Bound(pack.Bindings{
		Credential: func(name string) string { return stack.Credential(m.ID, name) },
		Folder:     func(input string) string { return stack.Folder(m.ID, input) },
	})
}

// Profile returns the attributes of the profiles in use that the policy can examine.
func (s *activeCatalog) Profile() gate.Profile {
	stack := s.profiles.InForce()
	return gate.Profile{Name: stack.Name(), Environment: stack.Environment(), Edition: stack.Edition()}
}

// Active returns the callable capabilities, sorted by id.
func (s *activeCatalog) Active() (list []*pack.Capability) {
	stack := s.profiles.InForce()
	for _, m := range s.Catalog().All() {
		if admitCapability(stack, m) == nil {
			list = append(list, bindProfiles(stack, m))
		}
	}
	return list
}

// Present returns the active capabilities whose program is on this machine. An agent would try every tool that it sees.
func (s *activeCatalog) Present() []*pack.Capability {
	here := s.installedCheck()
	return slices.DeleteFunc(s.Active(), func(m *pack.Capability) bool { return !here(m) })
}

// installedCheck returns a function that reports whether a capability's program is on this machine. It looks up each program
// once.
func (s *activeCatalog) installedCheck() (here func(*pack.Capability) bool) {
	known := map[string]bool{}
	installed := func(command string) bool {
		is, looked := known[command]
		if !looked {
			is = s.installed(command)
			known[command] = is
		}
		return is
	}
	return func(m *pack.Capability) bool {
		if m.Isolation == pack.MicroVM { // its program is in the image
			return s.image != nil && s.image(m.Pack) != ""
		}
		return m.Command == "" || slices.ContainsFunc(m.Programs(), installed)
	}
}

func newCapability(m *pack.Capability, whole bool) apitype.Capability {
	c := apitype.Capability{
		ID: m.ID, Description: m.Description, Pack: m.Pack, Version: m.Version, Risk: string(m.Risk),
		SideEffect: string(m.SideEffect), Reversibility: string(m.Reversibility), Isolation: string(m.Isolation),
		Digest: m.Digest,
	}
	if whole {
		c.Command, c.InputSchema, c.Preview, c.Covers = m.Command, m.InputSchema(), m.Previews(), m.Covers()
		c.Egress, c.Waivers, c.OutputSchema = m.Reaches(), m.Waivers(), m.OutputSchema()
	}
	return c
}

func (s *Server) listCapabilities(_ context.Context, _ localapi.None, from gateway.Caller) (apitype.CapabilityList, error) {
	rules := s.Rules.Engine()
	list, here := apitype.CapabilityList{Capabilities: []apitype.Capability{}}, s.shelf.installedCheck()
	for _, m := range s.shelf.Active() {
		c := newCapability(m, false)
		c.Absent, c.Denied = !here(m), rules.Never(m.ID, from.Principal.Agent)
		list.Capabilities = append(list.Capabilities, c)
	}
	return list, nil
}

func (s *Server) showCapability(_ context.Context, r apitype.ID, _ gateway.Caller) (apitype.Capability, error) {
	m, err := s.shelf.Catalog().Lookup(bailey.CapabilityID(r.ID))
	if err != nil {
		return apitype.Capability{}, err
	}
	return newCapability(bindProfiles(s.shelf.profiles.InForce(), m), true), nil
}

func (s *Server) searchCapabilities(_ context.Context, r apitype.SearchRequest,
	_ gateway.Caller) (apitype.SearchList, error) {
	out := apitype.SearchList{Capabilities: []apitype.SearchRow{}}
	stack := s.shelf.profiles.InForce()
	for _, m := range toolsearch.Search(s.shelf.Catalog(), r.Words, r.Limit) {
		c := m.Capability
		if admitCapability(stack, c) != nil {
			continue
		}
		out.Capabilities = append(out.Capabilities, apitype.SearchRow{ID: c.ID, Description: c.Description,
			SideEffect: string(c.SideEffect), Inputs: c.InputNames(), Score: m.Score})
	}
	return out, nil
}

func (s *Server) exportTools(_ context.Context, r apitype.ToolsRequest,
	from gateway.Caller) (json.RawMessage, error) {
	tools, err := mcp.Export(mcpBackend{s: s}.listTools(from.Principal, (*pack.Capability).InputSchema), r.Format)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tools)
}
