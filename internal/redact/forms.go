package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// minEncoded is the minimum length in bytes of a secret for which hex and base64 forms are searched. In a shorter one,
// some alignment leaves fewer than four characters that depend only on the secret.
const minEncoded = 4

// form is one spelling of a secret. In base64 the characters at both ends may also have bits of a neighbour. For the
// character before the core, there is one form per value of those bits. In the character after it, only the bits of the
// secret are compared.
type form struct {
	lead string // "" or one character
	core string
	bits uint8 // how many high bits of the character after core belong to the secret: 0, 2, 4
	top  byte  // their value
}

func (f form) len() int { return len(f.lead) + len(f.core) }

// firstBytes returns the first n bytes, or all if there are fewer.
func (f form) firstBytes(n int) string {
	s := f.lead + f.core[:min(len(f.core), n)]
	return s[:min(len(s), n)]
}

// secretForms returns every spelling of secret that is searched for, each once.
func secretForms(secret string) []form {
	var list []form
	for _, s := range escapedForms(secret) {
		list = append(list, form{core: s})
	}
	if len(secret) >= minEncoded {
		low := hex.EncodeToString([]byte(secret))
		list = append(list, form{core: low}, form{core: strings.ToUpper(low)})
		for before := range 3 {
			list = append(list, base64Forms(secret, before, stdAlphabet)...)
			list = append(list, base64Forms(secret, before, urlAlphabet)...)
		}
	}
	seen := map[form]bool{}
	out := list[:0]
	for _, f := range list {
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

const (
	alnum       = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	stdAlphabet = alnum + "+/"
	urlAlphabet = alnum + "-_"
)

// base64Forms returns the forms of secret; before is the number of other bytes at the start of its group of three. RFC
// 4648, sections 4 and 5: three bytes are four characters of six bits.
func base64Forms(secret string, before int, alphabet string) []form {
	enc := base64.NewEncoding(alphabet).WithPadding(base64.NoPadding)
	text := enc.EncodeToString([]byte("\x00\x00\x00"[:before] + secret))
	total := 8 * (before + len(secret))
	f := form{core: text[(8*before+5)/6 : total/6], bits: uint8(total % 6)}
	f.top = secret[len(secret)-1] & (1<<f.bits - 1)
	own := []int{0, 4, 2}[before] // bits of the secret in the character before the core
	if own == 0 {
		return []form{f}
	}
	var list []form
	for neighbour := range 1 << (6 - own) {
		v := neighbour<<own | int(secret[0]>>(8-own))
		f.lead = alphabet[v : v+1]
		list = append(list, f)
	}
	return list
}

// sixBits returns the value of a base64 character of either alphabet.
func sixBits(c byte) (byte, bool) {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A', true
	case 'a' <= c && c <= 'z':
		return c - 'a' + 26, true
	case '0' <= c && c <= '9':
		return c - '0' + 52, true
	case c == '+' || c == '-':
		return 62, true
	case c == '/' || c == '_':
		return 63, true
	}
	return 0, false
}

// escapedForms returns the secret itself, its JSON escapes by common encoders (once, and twice for JSON inside JSON), and
// its percent-encodings by common encoders.
func escapedForms(s string) []string {
	plain, html, ascii := jsonText(s, false), jsonText(s, true), jsonASCII(s)
	list := []string{
		s, plain, html, ascii, strings.ReplaceAll(plain, "/", `\/`), strings.ReplaceAll(ascii, "/", `\/`),
		jsonText(plain, false), jsonText(html, false), jsonText(ascii, false),
	}
	query := url.QueryEscape(s) // leaves -_.~, space is +
	strict := strings.ReplaceAll(query, "+", "%20")
	for _, p := range []string{
		query, strict, strings.ReplaceAll(strict, "~", "%7E"),
		percentEncode(s, "-_.~/"),                // Python's quote
		percentEncode(s, "-_.!~*'()"),            // encodeURIComponent
		percentEncode(s, "-_.!~*'();/?:@&=+$,#"), // encodeURI
		url.PathEscape(s), url.UserPassword("", s).String()[1:], percentAll(s),
	} {
		list = append(list, p, lowerHex(p))
	}
	return list
}

// jsonText returns the content of a JSON string. If html is set, it also escapes <, > and &, as encoding/json does.
func jsonText(s string, html bool) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// jsonASCII is jsonText with every character beyond ASCII as \uXXXX, in UTF-16 (RFC 8259, section 7).
func jsonASCII(s string) string {
	var b strings.Builder
	for _, r := range jsonText(s, false) {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// percentEncode encodes every byte that is not a letter, a digit or in keep (RFC 3986, section 2.1).
func percentEncode(s, keep string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(alnum, s[i]) >= 0 || strings.IndexByte(keep, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

func percentAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// lowerHex converts the two digits after each % to lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}
