package main

import (
	"os"
	"slices"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/wire"
)

// openHooks puts to use what was applied, with the home's own cages and ways out.
func (s *stack) openHooks(home wire.Home, masks []string) error {
	userHome, _ := os.UserHomeDir() // "": nothing begins with ~/
	book, err := openHookbook(&hookbook{home: home, userHome: userHome, note: s.scribe.note, tools: s.tools, log: s.log}, s.scribe.lore.Hooks)
	if err != nil {
		return err
	}
	s.hooks = hookGate{book: book, log: s.log, warned: &warned{}, chain: newChain(hooks.Config{Applied: book.Config, Cages: s.cages}, ways{settings: s.network}, masks, s.held)}
	return nil
}

// tools are the names of what there is to be called.
func (s *stack) tools() (names []string) {
	for _, m := range s.shelf.Catalog().All() {
		names = append(names, string(m.ID))
	}
	return names
}

// newChain fills in what every asker of hooks has: this machine's variables, ways out as settings have them, and what no
// hook sees for being near it.
func newChain(c hooks.Config, w ways, masks []string, workspaces func() []string) *hooks.Dispatcher {
	c.Bare, c.Environ, c.Plan, c.Open = jail.Uncaged{}, os.Environ, w.planFor, func(n *bailey.Network) (bailey.Way, error) { return w.Open(n, nil) }
	if jail.Bare {
		c.Cages = nil // a hook that is to have a cage is not started
	}
	c.Workspaces = workspaces
	c.Private = func() []string { return slices.Concat(masks, gateway.Homes(), workspaces()) }
	return hooks.New(c)
}

// held are the directories that agents may write: calls of theirs, and those inside a wall by themselves.
func (s *stack) held() (dirs []string) {
	if s.desk != nil {
		dirs = append(dirs, s.desk.settings.Applied().Workspaces...)
	}
	if s.sessions != nil {
		dirs = append(dirs, s.sessions.Projects()...)
	}
	return dirs
}
