package pack

import (
	"cmp"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// fragments contains the parts that capabilities of a pack share, by name. A capability with like: NAME is read as if
// it contained the part: a key that both have is joined if the values are mappings or lists (the part comes first), and
// is the capability's own otherwise.
type fragments struct {
	parts map[string]ast.Node
	used  map[string]bool
}

func (r *reader) readFragments(n ast.Node, f *fragments) {
	for _, kv := range r.Pairs(n, "fragments") {
		name := strictyaml.KeyText(kv)
		switch _, twice := f.parts[name]; {
		case !inputName().MatchString(name):
			r.AddFault(kv.Key, "fragment %q does not match %s", strictyaml.Clip(name), inputName())
		case twice:
			r.AddFault(kv.Key, "fragments has the key %q twice", name)
		case r.valueOf(kv.Value, "like") != nil:
			r.AddFault(kv.Key, "fragment %s cannot be like another", name)
		}
		r.Pairs(kv.Value, "a fragment")
		f.parts[name] = kv.Value
	}
}

// expandLike returns the capability with the fragments that its key like names.
func (r *reader) expandLike(n ast.Node, f *fragments) ast.Node {
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
		strictyaml.TextField(r.File, "like", &name)(item)
		part := f.parts[name]
		if part == nil {
			r.AddFault(item, "there is no fragment %q%s", strictyaml.Clip(name), strictyaml.DidYouMean(name, sortedKeys(f.parts)))
			return n
		}
		f.used[name] = true
		base = joinNodes(base, part)
	}
	return joinNodes(base, r.withoutKey(n, "like"))
}

// joinNodes returns base with over on top. It changes neither.
func joinNodes(base, over ast.Node) ast.Node {
	low, _ := strictyaml.PairsOf(base)
	high, _ := strictyaml.PairsOf(over)
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

// sameKey compares keys, whatever their spelling.
func sameKey(a, b *ast.MappingValueNode) bool {
	return strictyaml.KeyText(a) != "" && fullKey(a) == fullKey(b)
}

// fullKey returns the key of an entry in the spelling that Fields uses.
func fullKey(kv *ast.MappingValueNode) string {
	return cmp.Or(manifestFormat.Aliases[strictyaml.KeyText(kv)], strictyaml.KeyText(kv))
}

// valueOf returns the value of a key in a mapping, or nil.
func (r *reader) valueOf(n ast.Node, key string) ast.Node {
	pairs, _ := strictyaml.PairsOf(n)
	for _, kv := range pairs {
		if strictyaml.KeyText(kv) == key {
			return kv.Value
		}
	}
	return nil
}

func (r *reader) withoutKey(n ast.Node, key string) ast.Node {
	left := &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: n.GetToken()}
	seen := false
	pairs, _ := strictyaml.PairsOf(n)
	for _, kv := range pairs {
		if strictyaml.KeyText(kv) == key && !seen {
			seen = true
			continue
		}
		left.Values = append(left.Values, kv)
	}
	return left
}
