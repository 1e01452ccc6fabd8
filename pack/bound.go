package pack

import (
	"encoding/json"
	"maps"
	"slices"
)

// Bindings are the values with which a profile fills in parts of a manifest.
type Bindings struct {
	Credential func(name string) string  // name of a credential in the broker; nil: as in the manifest
	Folder     func(input string) string // value of a path input that a call omits; nil or "": none
}

// Bound returns a copy of m with bindings. Its behavior and digest do not change.
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

// withFolders returns the input with the bound folders that it omits.
func (m *Capability) withFolders(input map[string]any) map[string]any {
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

// relaxRequired returns the schema without the requirement for bound folders.
func (m *Capability) relaxRequired(schema json.RawMessage) json.RawMessage {
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
