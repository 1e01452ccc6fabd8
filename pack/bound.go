package pack

import (
	"encoding/json"
	"maps"
	"slices"
)

// Bindings are what a profile says in place of what a manifest leaves open.
type Bindings struct {
	Credential func(name string) string  // what the broker calls a credential; nil: what the manifest does
	Folder     func(input string) string // the value of a path input that a call leaves out; nil, or "": none
}

// Bound returns m with bindings. What it does, and its digest, are the same.
func (m *Capability) Bound(b Bindings) *Capability {
	bound := *m
	bound.credential, bound.folders = b.Credential, nil
	for _, in := range m.PathInputs() {
		if b.Folder == nil {
			break
		}
		if path := b.Folder(in.Name); path != "" {
			if bound.folders == nil {
				bound.folders = map[string]string{}
			}
			bound.folders[in.Name] = path
		}
	}
	return &bound
}

// filled returns the input with the folders that are bound and that it does not name.
func (m *Capability) filled(input map[string]any) map[string]any {
	if len(m.folders) == 0 {
		return input
	}
	all := make(map[string]any, len(input)+len(m.folders))
	for name, path := range m.folders {
		all[name] = path
	}
	maps.Copy(all, input)
	return all
}

// optional returns a schema that does not require the folders that are bound.
func (m *Capability) optional(schema json.RawMessage) json.RawMessage {
	var tree map[string]any
	if len(m.folders) == 0 || json.Unmarshal(schema, &tree) != nil {
		return schema
	}
	required, _ := tree["required"].([]any)
	tree["required"] = slices.DeleteFunc(required, func(name any) bool {
		text, _ := name.(string)
		return m.folders[text] != ""
	})
	if len(tree["required"].([]any)) == 0 {
		delete(tree, "required")
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return schema
	}
	return raw
}
