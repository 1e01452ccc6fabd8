package redact

// kind returns the category of a value that was found by its name: when it has as a whole the form of a known key that
// is what it is, so that a permit for passwords gives no such key away.
func (f *finder) kind(named Category, val []byte) Category {
	kind := named
	inner := finder{t: f.t, depth: maxDepth}
	inner.scan(val, true, func(s span) {
		if s.start == 0 && s.end == len(val) && formal(s.category) {
			kind = s.category
		}
	})
	return kind
}

// formal holds for categories that the form alone tells.
func formal(c Category) bool {
	switch c {
	case APIKey, CloudKey, JWT, PrivateKey, Webhook, PasswordHash, Cookie:
		return true
	}
	return false
}
