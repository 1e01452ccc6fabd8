package redact

// refineCategory returns the category of a value that was found by its name. If the whole value has the format of a known key, it
// gets the category of that key, so that a permit for passwords does not release it.
func (f *finder) refineCategory(named Category, val []byte) Category {
	kind := named
	inner := finder{t: f.t, depth: maxDepth}
	inner.scan(val, true, func(s span) {
		if s.start == 0 && s.end == len(val) && isFormatCategory(s.category) {
			kind = s.category
		}
	})
	return kind
}

// isFormatCategory reports whether the format alone determines a category.
func isFormatCategory(c Category) bool {
	switch c {
	case APIKey, CloudKey, JWT, PrivateKey, Webhook, PasswordHash, Cookie:
		return true
	}
	return false
}
