package pack

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

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
			return "is not a host, nor one with :port or /bits behind it"
		}
	case "url":
		return misplacedURL(v)
	}
	return ""
}

// isHost accepts a name (RFC 1123, section 2.1) or an address. It refuses a name whose last label begins with a digit,
// because some programs read it as an address (WHATWG URL, section 3.5).
func isHost(v string) bool {
	if a, err := netip.ParseAddr(v); err == nil {
		return a.Zone() == ""
	}
	name := strings.TrimSuffix(v, ".")
	if name == "" || len(name) > 253 {
		return false
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if !isHostLabel(l) {
			return false
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

func isHostLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for _, c := range []byte(l) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func isAddress(v string) bool {
	if isHost(v) {
		return true
	}
	if p, err := netip.ParsePrefix(v); err == nil {
		return p.IsValid()
	}
	h, p, ok := cutPort(v)
	return ok && isHost(h) && isPort(p)
}

// cutPort splits host:port and [v6]:port.
func cutPort(v string) (h, p string, ok bool) {
	if rest, in := strings.CutPrefix(v, "["); in {
		h, p, ok = strings.Cut(rest, "]:")
		a, err := netip.ParseAddr(h)
		return h, p, ok && err == nil && a.Is6()
	}
	h, p, ok = strings.Cut(v, ":")
	return h, p, ok
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
		return "is a URL with a blank or a backslash in it"
	case !isHost(u.Hostname()) || strings.HasPrefix(u.Host, "[") != strings.Contains(u.Hostname(), ":"):
		return "is a URL whose host is no name and no address"
	case u.Port() != "" && !isPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return "is a URL whose port is no number"
	}
	return ""
}
