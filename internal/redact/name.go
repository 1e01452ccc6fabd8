package redact

// parsedName is a name in lower case without the characters that join its parts. Parts are separated by joints or camel case.
type parsedName struct {
	text  [maxName]byte
	n     int
	ends  [maxParts]uint8
	parts int
}

const maxParts = 12

// parseName parses the name b. If b is too long, it parses only its last bytes.
func parseName(b []byte) (m parsedName) {
	b = b[max(0, len(b)-maxName):]
	from := 0
	end := func() {
		if m.n > from && m.parts < maxParts {
			m.ends[m.parts] = uint8(m.n)
			m.parts++
			from = m.n
		}
	}
	for i, c := range b {
		k := classes[c]
		switch {
		case k&alnum_ == 0:
			end()
			continue
		case i > 0 && k&upper != 0 && classes[b[i-1]]&upper == 0:
			end()
		case i > 0 && k&upper != 0 && i+1 < len(b) && classes[b[i+1]]&lower != 0: // APIToken
			end()
		}
		m.text[m.n] = c | 0x20
		m.n++
	}
	end()
	if m.parts == maxParts {
		m.ends[maxParts-1] = uint8(m.n)
	}
	return m
}

func (m *parsedName) equalsText(s string) bool { return string(m.text[:m.n]) == s }

func (m *parsedName) partStart(i int) int {
	if i <= 0 {
		return 0
	}
	return int(m.ends[i-1])
}

// partAt returns the i-th part, or nil.
func (m *parsedName) partAt(i int) []byte {
	if i < 0 || i >= m.parts {
		return nil
	}
	return m.text[m.partStart(i):m.ends[i]]
}

// partBeginsAt reports whether a part begins at i.
func (m *parsedName) partBeginsAt(i int) bool {
	for p := range m.parts {
		if m.partStart(p) == i {
			return true
		}
	}
	return false
}

// partEndingAt returns the part that ends at i.
func (m *parsedName) partEndingAt(i int) []byte {
	for p := range m.parts {
		if int(m.ends[p]) == i {
			return m.partAt(p)
		}
	}
	return nil
}

// isService reports whether up to three consecutive parts are the name of a service.
func (t *tables) isService(m *parsedName) bool {
	for i := range m.parts {
		for j := i; j < m.parts && j < i+3; j++ {
			if t.services[string(m.text[m.partStart(i):m.ends[j]])] {
				return true
			}
		}
	}
	return false
}

// digestWords has parts of names whose values are random but not secret.
var digestWords = vocabulary{text: `sum sums sha sha1 sha224 sha256 sha384 sha512 md5 h1 hash hashes digest digests checksum chksum integrity etag rev revision srcrev

	commit version ver build fingerprint thumbprint id ids uuid guid uid accessor public pub pubkey origin chars alphabet nonce trace span request
	crc blake2 image layer tree blob object parent index block tx transaction path file dir url uri href src name label title ref branch tag
	cert certificate csr signature sig modulus serial address etags cid nar sri`}

// isHarmless reports whether a part of the name marks its value as a digest or an identifier, or the whole name is one
// letter and one digit: h1, t1.
func (m *parsedName) isHarmless() bool {
	if m.n == 2 && classes[m.text[1]]&digit != 0 {
		return true
	}
	for p := range m.parts {
		if digestWords.has(m.partAt(p)) {
			return true
		}
	}
	return false
}

// flattenName returns b in lower case without the characters that join its parts.
func flattenName(b []byte) string {
	m := parseName(b)
	return string(m.text[:m.n])
}
