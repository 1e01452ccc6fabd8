package server

import (
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/gateway"
	"bailey/pack"
)

// prompts are arguments that make tools ask a person questions, which cannot be answered in a cage.
var prompts = []string{"-i", "-it", "-ti", "--interactive", "--edit"}

// mean returns the single call that a command line means.
func (s *Server) mean(argv []string) (gateway.Meant, error) {
	list := slices.DeleteFunc(s.shelf.Active(), func(m *pack.Capability) bool { return m.Isolation == pack.Agent })
	found := pack.Meanings(list, argv)
	switch {
	case len(found) == 0:
		return gateway.Meant{}, meansNothing(argv, pack.Near(list, argv))
	case len(found) > 1:
		var ids []string
		for _, m := range found {
			ids = append(ids, string(m.ID))
		}
		return gateway.Meant{}, &bailey.Error{Kind: bailey.NotFound, Message: "these words may mean " + strings.Join(ids, " or "), Hint: "say which: bailey run " + ids[0] + " …; bailey capabilities show " + ids[0] + " has its inputs"}
	case len(found[0].Inputs) != 1:
		return gateway.Meant{}, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("these words are %d calls of %s", len(found[0].Inputs), found[0].ID), Hint: "make them one by one"}
	}
	m := gateway.Meant{Capability: found[0].ID, Input: found[0].Inputs[0]}
	if _, given := m.Input[pack.StdinInput]; !given {
		if _, reads := found[0].Stdin(map[string]any{pack.StdinInput: ""}); reads {
			m.Stdin, m.MostStdin = pack.StdinInput, pack.MaxStdin
		}
	}
	return m, nil
}

// meansNothing returns an error that names similar capabilities.
func meansNothing(argv []string, near []*pack.Capability) error {
	e := &bailey.Error{Kind: bailey.NotFound, Message: "no capability does what these words of " + argv[0] + " would", Hint: "bailey capabilities list has what there is"}
	if i := slices.IndexFunc(argv[1:], func(w string) bool { return slices.Contains(prompts, w) || w == "--" }); i >= 0 && argv[i+1] != "--" {
		e.Message = fmt.Sprintf("%s %s may ask a person, whom nobody can be in a cage, and no capability does it", argv[0], argv[i+1])
	}
	if len(near) > 0 {
		var ids []string
		for _, m := range near {
			ids = append(ids, string(m.ID))
		}
		e.Hint = "near are " + strings.Join(ids, ", ") + "; bailey capabilities show " + ids[0] + " has its inputs, and bailey run calls it"
	}
	return e
}
