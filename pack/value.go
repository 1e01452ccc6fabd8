package pack

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// Limits of values.
const (
	maxArg   = 32 << 10 // bytes of one string, and of one rendered argument
	maxTotal = 10 << 20 // bytes of all of them
	maxDeep  = 32       // levels of lists and objects in one input
)

// allowances contains the values of x-bailey allow, see the package comment.
var allowances = []string{"at", "empty", "file", "lines", "option", "plain", "url"}

// describeHiddenChar returns a description of the first character in v that can hide or change the visible text, or "".
func describeHiddenChar(v string, lines bool) string {
	if !utf8.ValidString(v) {
		return "invalid UTF-8"
	}
	for _, c := range v {
		switch {
		case c == 0:
			return "a NUL"
		case lines && (c == '\n' || c == '\t'):
		case ' ' <= c && c <= '~':
		case unicode.IsControl(c):
			return fmt.Sprintf("the control character %U", c)
		case unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp):
			return fmt.Sprintf("the invisible character %U", c)
		}
	}
	return ""
}

// inputTextFault returns the fault of a string of the caller, or "". The result contains no part of the string.
func inputTextFault(v string, r *rule, allow []string) string {
	can := func(what string) bool { return slices.Contains(allow, what) }
	if len(v) > maxArg {
		return fmt.Sprintf("has %d bytes, more than %d", len(v), maxArg)
	}
	if v == "" && !can("empty") {
		return "is empty"
	}
	if what := describeHiddenChar(v, can("lines")); what != "" {
		return "holds " + what
	}
	if r.options != nil {
		if fault := r.options.faultOf(v); fault != "" {
			return fault
		}
	}
	if r.Format == "subpath" && !isSubpath(v) {
		return "is not a relative path without .. below the working directory"
	}
	if r.Format == "path" {
		return "" // does not reach the tool: Render replaces it with the canonical path
	}
	if r.Format == "url" && can("plain") {
		v = withScheme(v)
	}
	if what := locationFault(r.Format, v); what != "" {
		return what
	}
	return fileOrURLFault(v, func(what string) bool { return can(what) || what == "url" && r.Format == "url" })
}

// fileOrURLFault refuses values that many tools replace with the contents of a file or an address.
func fileOrURLFault(v string, can func(string) bool) string {
	for _, start := range valueStarts(v) {
		start = strings.ToLower(start)
		switch {
		case strings.HasPrefix(start, "@") && !can("at"):
			return "would be read from a file (@)"
		case (strings.HasPrefix(start, "file://") || strings.HasPrefix(start, "fileb://")) && !can("file"):
			return "would be read from a file (file://)"
		case (strings.HasPrefix(start, "http://") || strings.HasPrefix(start, "https://")) && !can("url"):
			return "would be fetched (http://)"
		}
	}
	return ""
}

const longestStart = len("fileb://")

// valueStarts returns the beginning of v, and of the text after each = in v, without leading white space.
func valueStarts(v string) []string {
	var all []string
	for rest, more := v, true; more; {
		head := strings.TrimLeft(rest, " \t\n")
		all = append(all, head[:min(len(head), longestStart)])
		_, rest, more = strings.Cut(rest, "=")
	}
	return all
}

// isSubpath reports whether v is a relative path that stays below its directory and that git treats as a name. A leading
// colon begins git pathspec magic.
func isSubpath(v string) bool {
	return v != "" && !path.IsAbs(v) && v[0] != ':' && !slices.Contains(strings.Split(v, "/"), "..") &&
		!strings.Contains(v, `\`)
}

// numeralForm matches a number in RFC 8259.
var numeralForm = lazyRegexp(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

const maxExponent = 308 // of float64; a larger exponent would be too expensive for big.Rat

// parseNumber returns the exact value of n. Its size is limited, so it has few digits.
func parseNumber(n json.Number) (*big.Rat, error) {
	v := string(n)
	if len(v) > 64 || !numeralForm().MatchString(v) {
		return nil, fmt.Errorf("not a number")
	}
	if _, e, ok := strings.Cut(strings.ToLower(v), "e"); ok {
		if exp, err := strconv.Atoi(e); err != nil || exp > maxExponent || exp < -maxExponent {
			return nil, fmt.Errorf("not a number")
		}
	}
	r, ok := new(big.Rat).SetString(v)
	if !ok {
		return nil, fmt.Errorf("not a number")
	}
	return r, nil
}

// normalizeNumber writes whole numbers in plain digits, for example 1e6 as 1000000 and 5.0 as 5. Other numbers stay unchanged.
func normalizeNumber(n json.Number) (json.Number, error) {
	r, err := parseNumber(n)
	if err != nil || !r.IsInt() {
		return n, err
	}
	return json.Number(r.Num().String()), nil
}

// locationFault returns the fault of a value whose format is a network location, or "". It refuses spellings that programs
// interpret differently, such as 127.1, 0x7f.1, a zone, or a user before the host: the rule and the tool must refer to
// the same host.
func locationFault(format, v string) string {
	switch format {
	case "host":
		if !isHost(v) {
			return "is not the name or the address of a host"
		}
	case "address":
		if !isAddress(v) {
			return "is not a host, optionally with :port or /bits after it"
		}
	case "url":
		return misplacedURL(v)
	}
	return ""
}

// withScheme returns a url as curl reads it: without a scheme it is http://.
func withScheme(v string) string {
	if strings.Contains(v, "://") {
		return v
	}
	return "http://" + v
}

// isHost accepts a name (RFC 1123, section 2.1) or an address. It refuses a name whose last label begins with a digit,
// because some programs read it as an address (WHATWG URL, section 3.5).
func isHost(v string) bool {
	if a, err := netip.ParseAddr(v); err == nil {
		return a.Zone() == ""
	}
	name, _, why := bailey.ParseHost(v)
	last := name[strings.LastIndexByte(name, '.')+1:]
	return why == "" && (last[0] < '0' || last[0] > '9')
}

func isAddress(v string) bool {
	if isHost(v) {
		return true
	}
	if p, err := netip.ParsePrefix(v); err == nil {
		return p.IsValid()
	}
	h, _, ok := bailey.SplitPort(v)
	h, bracketed := strings.CutPrefix(h, "[")
	h = strings.TrimSuffix(h, "]")
	return ok && isHost(h) && bracketed == strings.Contains(h, ":")
}

func isPort(p string) bool {
	n, err := strconv.ParseUint(p, 10, 16)
	return err == nil && n > 0 && p[0] != '0'
}

func misplacedURL(v string) string {
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "":
		return "is not a URL with a scheme and a host"
	case u.User != nil:
		return "is a URL with a user before its host"
	case strings.ContainsAny(v, "\\ \t\n"):
		return "is a URL with a space or a backslash in it"
	case !isHost(u.Hostname()) || strings.HasPrefix(u.Host, "[") != strings.Contains(u.Hostname(), ":"):
		return "is a URL whose host is neither a name nor an address"
	case u.Port() != "" && !isPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return "is a URL whose port is not a number"
	}
	return ""
}
