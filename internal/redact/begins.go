package redact

import (
	"bytes"
	"slices"
	"strings"
)

// findConstruct decides on a byte that can start a separate construct: '$' a password hash, '{' a credential file or an
// LDAP hash, '::' an address. It returns the number of bytes consumed.
func (f *finder) findConstruct(b []byte, i int, final bool, add func(span)) (n int, open bool) {
	var end int
	var category Category
	switch b[i] {
	case '$':
		if f.sums.isExhausted(i) {
			return 0, false
		}
		var stop int
		if end, stop, open = findCryptHash(b, i, final); end == 0 && !open {
			f.sums.noteMiss(i, stop)
		}
		category = PasswordHash
	case '{':
		if end, open = ldapHash(b, i, final); open || end > 0 {
			category = PasswordHash
			break
		}
		end, open = findCredentialFile(b, i, final)
		category = Credentials
	case ':':
		if i > 0 && (classes[b[i-1]]&word != 0 || b[i-1] == ':') {
			return 0, false
		}
		if i+1 == len(b) {
			return 0, !final
		}
		if b[i+1] != ':' {
			return 0, false
		}
		end, open = ipv6(b, i, final)
		category = IPv6
	}
	if open || end == 0 {
		return 0, open
	}
	add(span{i, end, category})
	if category == PasswordHash && end-i >= maxHash {
		f.tail = category
	}
	return end - i, false
}

// maxHash is the maximum length of a hash in the form of crypt(5), in bytes.
const maxHash = 512

// cryptSchemes lists the schemes of crypt(5), of PHC strings (argon2, scrypt, pbkdf2) and of htpasswd.
var cryptSchemes = []string{"1", "2", "2a", "2b", "2x", "2y", "5", "6", "7", "y", "gy", "md5", "sha1", "apr1", "P", "H",
	"S", "scrypt", "yescrypt",
	"argon2i", "argon2d", "argon2id", "pbkdf2", "pbkdf2-sha256", "pbkdf2-sha512", "bcrypt-sha256"}

// findCryptHash finds $scheme$… with a salt and at least 13 characters of hash behind the last dollar sign. stop is the
// offset up to which no further search is needed.
func findCryptHash(b []byte, i int, final bool) (end, stop int, open bool) {
	j := i + 1
	for j < len(b) && j-i < 16 && classes[b[j]]&(alnum_|joint) != 0 {
		j++
	}
	if j == len(b) && !final {
		return 0, 0, true
	}
	if j == len(b) || b[j] != '$' || !slices.Contains(cryptSchemes, string(b[i+1:j])) {
		return 0, i, false
	}
	for j < len(b) && j-i < maxHash &&
		(classes[b[j]]&(alnum_|dot|slash|joint) != 0 || strings.IndexByte("$+=,", b[j]) >= 0) {
		j++
	}
	if j == len(b) && !final {
		return 0, 0, true
	}
	text := bytes.TrimRight(b[i:j], ",")
	if dollar := bytes.LastIndexByte(text, '$'); len(text)-dollar < 14 || len(text) < 20 {
		return 0, j, false
	}
	return i + len(text), j, false
}

// ldapSchemes lists the schemes of RFC 2307 and its variants.
var ldapSchemes = []string{"SSHA", "SHA", "SMD5", "MD5", "SSHA256", "SSHA384", "SSHA512", "SHA256", "SHA512", "CRYPT",
	"ARGON2", "PBKDF2", "PBKDF2-SHA512"}

// ldapHash finds {scheme} and the text directly after it.
func ldapHash(b []byte, i int, final bool) (end int, open bool) {
	j := i + 1
	for j < len(b) && j-i < 16 && classes[b[j]]&(upper|digit|joint) != 0 {
		j++
	}
	if j == len(b) && !final {
		return 0, true
	}
	if j == len(b) || b[j] != '}' || !slices.Contains(ldapSchemes, string(b[i+1:j])) {
		return 0, false
	}
	from := j + 1
	for j = from; j < len(b) && j-i < maxHash && (classes[b[j]]&word != 0 || strings.IndexByte("$=,", b[j]) >= 0); j++ {
	}
	switch {
	case j == len(b) && j-i < maxHash && !final:
		return 0, true
	case j-from < 13:
		return 0, false
	}
	return j, false
}

// maxObject is the maximum size of a credential file, in bytes.
const maxObject = 8 << 10

// fileKeys lists the keys of Google's credential files; typed lists the values of their key type.
var (
	fileKeys = []string{"type", "project_id", "private_key_id", "private_key", "client_email", "client_id", "auth_uri",
		"token_uri",
		"auth_provider_x509_cert_url", "client_x509_cert_url", "universe_domain", "client_secret", "refresh_token", "account", "quota_project_id"}
	keyFileTypes = []string{"service_account", "authorized_user", "external_account_authorized_user",
		"impersonated_service_account"}
)

// findCredentialFile finds a JSON object that is a credential file. It must be flat, with only string values. Its first
// key and its type must be those of such a file, and it must have a private key, a client secret or a refresh token.
func findCredentialFile(b []byte, i int, final bool) (end int, open bool) {
	limit := min(len(b), i+maxObject)
	r := jsonReader{b: b[:limit], at: i + 1}
	kind, secret := false, false
	for first := true; ; first = false {
		key, ok := r.readString()
		if !ok || first && !slices.Contains(fileKeys, string(key)) || !r.readSign(':') {
			break
		}
		val, ok := r.readString()
		if !ok {
			break
		}
		kind = kind || string(key) == "type" && slices.Contains(keyFileTypes, string(val))
		secret = secret || len(val) > 0 &&
			slices.Contains([]string{"private_key", "client_secret", "refresh_token"}, string(key))
		if r.readSign('}') {
			if kind && secret {
				return r.at, false
			}
			return 0, false
		}
		if !r.readSign(',') {
			break
		}
	}
	return 0, r.short && limit < i+maxObject && !final
}

// jsonReader reads JSON strings and signs. short is set if the bytes did not suffice.
type jsonReader struct {
	b     []byte
	at    int
	short bool
}

func (r *jsonReader) skipSpace() {
	for r.at < len(r.b) && classes[r.b[r.at]]&gap != 0 {
		r.at++
	}
	r.short = r.at == len(r.b)
}

func (r *jsonReader) readSign(c byte) bool {
	if r.skipSpace(); r.short || r.b[r.at] != c {
		return false
	}
	r.at++
	return true
}

func (r *jsonReader) readString() ([]byte, bool) {
	if !r.readSign('"') {
		return nil, false
	}
	from := r.at
	for ; r.at < len(r.b); r.at++ {
		switch r.b[r.at] {
		case '\\':
			r.at++
		case '"':
			r.at++
			return r.b[from : r.at-1], true
		}
	}
	r.at, r.short = min(r.at, len(r.b)), true
	return nil, false
}
