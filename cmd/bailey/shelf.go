package main

import (
	"slices"
	"sync/atomic"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/pack"
)

// basePack is active whatever a profile says: it has what agents do by themselves, and a hook that knew none of that could
// only refuse.
const basePack = "base"

// shelf is what can be called: the capabilities of all packs, as far as the profiles in use have them. It is the gate's
// catalog.
type shelf struct {
	all       atomic.Pointer[pack.Catalog]
	profiles  *gateway.Profiles
	installed func(command string) bool
}

func newShelf(c *pack.Catalog, p *gateway.Profiles, installed func(string) bool) *shelf {
	s := &shelf{profiles: p, installed: installed}
	s.all.Store(c)
	return s
}

// stock puts other packs on the shelf, from the next call on, once first has recorded why; the policy in force has to hold
// for them.
func (s *stack) stock(c *pack.Catalog, first func() error) error {
	if err := s.rules.Stock(c, first); err != nil {
		return err
	}
	s.shelf.all.Store(c)
	return nil
}

// Catalog has the capabilities of all packs, also those that no profile in use has: rules may speak of them.
func (s *shelf) Catalog() *pack.Catalog { return s.all.Load() }

// Lookup returns a capability that can be called now, with what the profiles in use bind.
func (s *shelf) Lookup(id bailey.CapabilityID) (*pack.Capability, error) {
	m, err := s.Catalog().Lookup(id)
	if err != nil {
		return nil, err
	}
	stack := s.profiles.InForce()
	if err := admit(stack, m); err != nil {
		return nil, err
	}
	return bind(stack, m), nil
}

func admit(stack gateway.Stack, m *pack.Capability) error {
	if m.Pack == basePack {
		return stack.Fault()
	}
	return stack.Admit(m.ID, m.Pack)
}

func bind(stack gateway.Stack, m *pack.Capability) *pack.Capability {
	if len(stack.Profiles) == 0 {
		return m
	}
	return m.Bound(pack.Bindings{
		Credential: func(name string) string { return stack.Credential(m.ID, name) },
		Folder:     func(input string) string { return stack.Folder(m.ID, input) },
	})
}

// Profile is what policy sees of the profiles in use.
func (s *shelf) Profile() gate.Profile {
	stack := s.profiles.InForce()
	return gate.Profile{Name: stack.Name(), Environment: stack.Environment(), Edition: stack.Edition()}
}

// Active are the capabilities that can be called now, by id.
func (s *shelf) Active() (list []*pack.Capability) {
	stack := s.profiles.InForce()
	for _, m := range s.Catalog().All() {
		if admit(stack, m) == nil {
			list = append(list, bind(stack, m))
		}
	}
	return list
}

// Present are those whose program is on this machine: an agent that sees a tool tries it.
func (s *shelf) Present() []*pack.Capability {
	here := s.looking()
	return slices.DeleteFunc(s.Active(), func(m *pack.Capability) bool { return !here(m) })
}

// looking reports whether what a capability runs is on this machine, and looks once for what several run.
func (s *shelf) looking() (here func(*pack.Capability) bool) {
	known := map[string]bool{}
	installed := func(command string) bool {
		is, looked := known[command]
		if !looked {
			is = s.installed(command)
			known[command] = is
		}
		return is
	}
	return func(m *pack.Capability) bool { return m.Command == "" || slices.ContainsFunc(m.Programs(), installed) }
}
