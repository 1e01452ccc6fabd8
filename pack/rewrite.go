package pack

// Text contains the properties of a string in an input that a restorer of secrets needs. It is the zero Text if the
// schema does not define them for certain: in combinators, unknown inputs and keys.
type Text struct {
	Format        string   // host, address, url, path, subpath
	AcceptsSecret []string // categories
}

// Rewrite returns a copy of input, checked or not, in which f has replaced each string value.
func (m *Capability) Rewrite(input map[string]any, f func(s string, t Text) string) map[string]any {
	if input == nil {
		return nil
	}
	w := rewriter(f)
	out := make(map[string]any, len(input))
	for _, name := range sortedKeys(input) { // sorted, so that f is always called in the same order
		r := m.schema.props[name]
		if m.isPath(name) {
			r = &rule{Format: "path", Type: typeList{"string"}}
		}
		out[name] = w.rewriteValue(input[name], r)
	}
	return out
}

type rewriter func(s string, t Text) string

func (w rewriter) rewriteValue(v any, r *rule) any {
	r = r.followRef()
	switch v := v.(type) {
	case string:
		if r == nil || !r.hasType("string") {
			return w(v, Text{})
		}
		return w(v, Text{Format: r.Format, AcceptsSecret: r.Secrets})
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var items *rule
			if r != nil {
				items = r.Items
			}
			out[i] = w.rewriteValue(e, items)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range sortedKeys(v) {
			var member *rule
			if r != nil {
				member = r.Properties[name]
			}
			out[name] = w.rewriteValue(v[name], member)
		}
		return out
	}
	return v
}
