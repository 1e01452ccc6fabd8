package pack

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// fragments contains the parts that capabilities of a pack share, by name. A capability with like: NAME is read as if
// it contained the part: a key that both have is joined if the values are mappings or lists (the part comes first), and
// is the capability's own otherwise.
type fragments struct {
	parts map[string]ast.Node
	used  map[string]bool
}

func (r *reader) readFragments(n ast.Node, f *fragments) {
	for _, kv := range r.mappingPairs(n, "fragments") {
		name, _ := keyText(kv.Key)
		switch _, twice := f.parts[name]; {
		case !inputName().MatchString(name):
			r.addFault(kv.Key.GetToken(), "fragment %q does not match %s", clipText(name), inputName())
		case twice:
			r.addFault(kv.Key.GetToken(), "fragments has the key %q twice", name)
		case r.valueOf(kv.Value, "like") != nil:
			r.addFault(kv.Key.GetToken(), "fragment %s cannot be like another", name)
		}
		r.mappingPairs(kv.Value, "a fragment")
		f.parts[name] = kv.Value
	}
}

// expand returns the capability with the fragments that its key like names.
func (r *reader) expand(n ast.Node, f *fragments) ast.Node {
	like := r.valueOf(n, "like")
	if like == nil {
		return n
	}
	names := []ast.Node{like}
	if list, ok := like.(*ast.SequenceNode); ok {
		names = list.Values
	}
	var base ast.Node
	for _, item := range names {
		var name string
		r.textField("like", &name)(item)
		part := f.parts[name]
		if part == nil {
			r.addFault(tokenOf(item), "there is no fragment %q%s", clipText(name), didYouMean(name, sortedKeys(f.parts)))
			return n
		}
		f.used[name] = true
		base = joinNodes(base, part)
	}
	return joinNodes(base, r.withoutKey(n, "like"))
}

// joinNodes returns base with over on top. It changes neither.
func joinNodes(base, over ast.Node) ast.Node {
	low, high := pairsOf(base), pairsOf(over)
	if low != nil && high != nil {
		joined := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: over.GetToken()}
		for _, kv := range low {
			if i := slices.IndexFunc(high, func(o *ast.MappingValueNode) bool { return sameKey(kv, o) }); i >= 0 {
				both := *high[i]
				both.Value = joinNodes(kv.Value, both.Value)
				kv = &both
			}
			joined.Values = append(joined.Values, kv)
		}
		for i, kv := range high {
			repeated := slices.ContainsFunc(high[:i], func(o *ast.MappingValueNode) bool { return sameKey(kv, o) })
			if repeated || !slices.ContainsFunc(low, func(o *ast.MappingValueNode) bool { return sameKey(kv, o) }) {
				joined.Values = append(joined.Values, kv) // a repeated key is a fault of the reader
			}
		}
		return joined
	}
	if a, ok := base.(*ast.SequenceNode); ok {
		if b, ok := over.(*ast.SequenceNode); ok {
			joined := *b
			joined.Values = slices.Concat(a.Values, b.Values)
			return &joined
		}
	}
	return over
}

func pairsOf(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// sameKey compares keys in the spelling that readFields uses.
func sameKey(a, b *ast.MappingValueNode) bool {
	x, okX := keyText(a.Key)
	y, okY := keyText(b.Key)
	if full, ok := keyAliases[x]; ok {
		x = full
	}
	if full, ok := keyAliases[y]; ok {
		y = full
	}
	return okX && okY && x == y
}

// valueOf returns the value of a key in a mapping, or nil.
func (r *reader) valueOf(n ast.Node, key string) ast.Node {
	for _, kv := range pairsOf(n) {
		if k, _ := keyText(kv.Key); k == key {
			return kv.Value
		}
	}
	return nil
}

func (r *reader) withoutKey(n ast.Node, key string) ast.Node {
	left := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: n.GetToken()}
	seen := false
	for _, kv := range pairsOf(n) {
		if k, _ := keyText(kv.Key); k == key && !seen {
			seen = true
			continue
		}
		left.Values = append(left.Values, kv)
	}
	return left
}
