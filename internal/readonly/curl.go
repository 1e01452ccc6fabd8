package readonly

import (
	"net/netip"
	"strconv"
	"strings"
)

// checkCurl accepts GET and HEAD requests to loopback. Redirects are not followed, since their target can be elsewhere.
func checkCurl(c *call) *refusal {
	if len(c.operands) == 0 && !c.hasOption("help", "version", "V") {
		return newRefusal(c.rule.Hint, "curl has no URL")
	}
	for _, o := range c.options {
		if r := c.curlOption(o); r != nil {
			return r
		}
	}
	for _, at := range c.operands {
		if r := c.loopbackURL(c.args[at].value); r != nil {
			return r
		}
	}
	return nil
}

// curlOption checks the values of options that can read or write a file, or change the method.
func (c *call) curlOption(o option) *refusal {
	switch o.name {
	case "X", "request":
		if o.value != "GET" && o.value != "HEAD" {
			return newRefusal(c.rule.Hint, "the method %q of curl can change state", o.value)
		}
	case "o", "output":
		if o.value != "/dev/null" && o.value != "-" {
			return newRefusal("The output is returned without a file; -o /dev/null discards it.",
				"curl writes the file %q",
				o.value)
		}
	case "D", "dump-header":
		if o.value != "-" {
			return newRefusal("Use -i or -I to see the headers.", "curl writes the file %q", o.value)
		}
	case "w", "write-out":
		if strings.HasPrefix(o.value, "@") || strings.Contains(o.value, "output{") {
			return newRefusal("Use variables such as %{http_code}.", "the format of curl reads or writes a file")
		}
	case "H", "header":
		if strings.HasPrefix(o.value, "@") || !strings.ContainsAny(o.value, ":;") || overridesMethod(o.value) {
			return newRefusal("Write -H 'NAME: VALUE'", "the header %q of curl is not accepted", o.value)
		}
	}
	return nil
}

// overridesMethod reports whether a header tells the server to use another method.
func overridesMethod(header string) bool {
	name, _, _ := strings.Cut(strings.ToLower(header), ":")
	return strings.Contains(name, "method") || strings.Contains(name, "override")
}

// loopbackURL accepts http and https URLs of a loopback host. The parts that curl and this function could read
// differently are refused: user names, globs in the host, a query without a path, backslashes and spaces.
func (c *call) loopbackURL(text string) *refusal {
	rest := text
	if scheme, after, ok := strings.Cut(text, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return newRefusal(c.rule.Hint, "the scheme of %s is not http or https", text)
		}
		rest = after
	}
	host := rest
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		host = rest[:i]
	}
	for i := 0; i < len(text); i++ {
		if text[i] <= ' ' || text[i] > '~' || text[i] == '\\' {
			return newRefusal(c.rule.Hint, "the URL contains the character %q", text[i:i+1])
		}
	}
	if !loopbackAddress(host, false) {
		return newRefusal(c.rule.Hint, "the host of %s is not loopback", text)
	}
	return nil
}

// loopbackAddress reports whether HOST, HOST:PORT or [IPv6]:PORT is loopback. A port must exist if needsPort is true.
func loopbackAddress(text string, needsPort bool) bool {
	host, port := text, ""
	switch i := strings.LastIndexByte(text, ':'); {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return false
		}
		host, port = text[1:end], text[end+1:]
		if !strings.Contains(host, ":") || port != "" && port[0] != ':' {
			return false
		}
		if port != "" && len(port) == 1 {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	case i >= 0:
		if host, port = text[:i], text[i+1:]; port == "" || strings.Contains(host, ":") {
			return false
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); port == "" && needsPort || port != "" &&
		(err != nil || n == 0 || port[0] == '+') {
		return false
	}
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() && a.Zone() == "" && !a.Is4In6()
}

// checkOpenSSL checks a command of openssl with the rule of that command.
func checkOpenSSL(c *call) *refusal {
	if r := c.makeLiteralFrom(1); r != nil {
		return r
	}
	sub := ""
	if len(c.args) > 1 {
		sub = c.args[1].value
	}
	rule := c.k.table.nested["openssl "+sub]
	if rule == nil {
		return newRefusal(c.rule.Hint, "the command %q of openssl is not in the read-only set", sub)
	}
	inner := &call{k: c.k, rule: rule, args: c.args[1:], in: c.in, feed: c.feed}
	if r := inner.parseArguments(); r != nil {
		return r
	}
	if r := inner.checkOperands(); r != nil {
		return r
	}
	for _, o := range inner.options {
		if o.name == "in" && strings.Contains(o.value, ":") {
			return newRefusal("Write the path of the file.", "openssl reads %q as a URI, which can load code", o.value)
		}
	}
	if sub == "s_client" {
		c.network = true
		return inner.checkClient()
	}
	return nil
}

// checkClient accepts a connection to loopback without data: openssl sends its standard input to the server, so a pipe
// into it could write (for example to Redis over TLS).
func (c *call) checkClient() *refusal {
	connects := false
	for _, o := range c.options {
		if o.name == "connect" {
			if connects = true; !loopbackAddress(o.value, true) {
				return newRefusal(c.rule.Hint, "the address %q is not loopback with a port", o.value)
			}
		}
	}
	switch {
	case !connects && !c.hasOption("help"):
		return newRefusal(c.rule.Hint, "openssl s_client needs -connect")
	case c.in != inputEmpty:
		return newRefusal(c.rule.Hint, "openssl s_client sends its standard input to the server")
	}
	return nil
}
