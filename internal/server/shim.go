package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/pack"
)

// shimmed records an installation or removal of shims before it happens. Only tools that a pack knows may be installed.
func (s *Server) shimmed(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	tools, err := lineOf(q.Args["tools"])
	if err != nil {
		return nil, err
	}
	if q.Verb == apitype.ShimInstallEvent {
		known := shimmable(s.shelf.Catalog().All())
		for _, t := range tools {
			if !slices.Contains(known, t) {
				return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no pack has a capability for %q", t), Hint: "packs know " + strings.Join(known, ", ") + "; bailey pack onboard makes one for another tool"}
			}
		}
	}
	return struct{}{}, s.scribe.note(ctx, q.Verb, map[string]any{"tools": tools, "operator": q.Operator, "person": from.Principal.Person})
}

// shimmable returns the tools whose command lines can be mapped to calls.
func shimmable(list []*pack.Capability) (tools []string) {
	for _, m := range list {
		if m.Isolation == pack.Agent {
			continue
		}
		for _, words := range m.ArgvPattern() {
			tool, _, _ := strings.Cut(words, " ")
			tools = append(tools, tool)
		}
	}
	slices.Sort(tools)
	return slices.Compact(tools)
}

// lineOf decodes a list of strings from a query argument.
func lineOf(v any) ([]string, error) {
	b, err := json.Marshal(v)
	var list []string
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil || len(list) == 0 {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the query lacks its words", Hint: "client and gateway may be of two versions: bailey gateway stop", Err: err}
	}
	return list, nil
}
