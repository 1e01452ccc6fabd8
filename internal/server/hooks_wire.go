package server

import (
	"os"
	"slices"

	"bailey"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/workspace"
)

// openHooks loads the applied hooks, with the cages and the network access of the home.
func (s *Server) openHooks(home localapi.Home, masks []string) error {
	userHome, _ := os.UserHomeDir() // "" if unknown: no path may begin with ~/
	book, err := openHookStore(&hookStore{home: home, userHome: userHome, note: s.scribe.note, tools: s.tools, log: s.Log}, s.scribe.lore.Hooks)
	if err != nil {
		return err
	}
	s.hooks = hookGate{book: book, log: s.Log, warned: &warned{}, chain: NewChain(hooks.Config{Applied: book.Config, Cages: s.cages}, EgressPlanner{Settings: s.network}, masks, s.held)}
	return nil
}

// tools returns the names of all capabilities.
func (s *Server) tools() (names []string) {
	for _, m := range s.shelf.Catalog().All() {
		names = append(names, string(m.ID))
	}
	return names
}

// NewChain sets the fields that all users of hooks share: the environment, network access according to the settings,
// and the paths that a hook must not see merely because its program is near them.
func NewChain(c hooks.Config, w EgressPlanner, masks []string, workspaces func() []string) *hooks.Dispatcher {
	c.Bare, c.Environ, c.Plan, c.Open = jail.Uncaged{}, os.Environ, w.planFor, func(n *bailey.Network) (bailey.Way, error) { return w.Open(n, nil) }
	if jail.Bare {
		c.Cages = nil // a hook that must have a cage is not started
	}
	c.Workspaces = workspaces
	c.Private = func() []string { return slices.Concat(masks, workspace.Homes(), workspaces()) }
	return hooks.New(c)
}

// held returns the directories that agents may write, with their calls or by themselves inside the agent jail.
func (s *Server) held() (dirs []string) {
	if s.desk != nil {
		dirs = append(dirs, s.desk.settings.Applied().Workspaces...)
	}
	if s.sessions != nil {
		dirs = append(dirs, s.sessions.Projects()...)
	}
	return dirs
}
