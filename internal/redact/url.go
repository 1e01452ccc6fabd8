package redact

import (
	"bytes"
	"slices"
	"strings"
)

// findJDBC handles the JDBC scheme, which is followed by a URL.
func (f *finder) findJDBC(b []byte, i, j int, final bool, add func(span)) (int, bool) {
	k := runEnd(b[:min(len(b), j+maxLogin)], j+1, alnum_|joint|sign)
	if bytes.HasPrefix(b[j+1:k], []byte("oracle")) {
		return findOracleThin(b, i, k, final, add)
	}
	rest := b[k:min(len(b), k+3)]
	if len(rest) < 3 && !final && strings.HasPrefix("://", string(rest)) {
		return 0, true
	}
	if string(rest) != "://" {
		return 0, false
	}
	return f.findInURL(b, i, k, final, add)
}

// findOracleThin handles a URL of Oracle's driver from its second colon on: jdbc:oracle:thin:user/password@host.
func findOracleThin(b []byte, i, k int, final bool, add func(span)) (int, bool) {
	end, open := urlEnd(b, k, maxAuthority, "", final)
	if open {
		return 0, true
	}
	login, _, at := bytes.Cut(b[k:end], []byte("@"))
	_, password, both := bytes.Cut(login, []byte("/"))
	if !at || !both || len(password) == 0 || isPlaceholder(password) {
		return 0, false
	}
	add(span{i, end, Connection})
	return end, false
}

// findInURL finds user and password in a URL whose scheme is b[i:j]. If the scheme only gives a location (such as http,
// git or ssh), the secret extends to the end of host and port. If it says how to connect, the whole URL is secret. A
// URL can also be a secret as a whole, and its host can be the name of a tenant.
func (f *finder) findInURL(b []byte, i, j int, final bool, add func(span)) (int, bool) {
	from := j + len("://")
	to, open := urlEnd(b, from, maxAuthority, "/?#", final)
	if open {
		return 0, true
	}
	authority := b[from:to]
	at := bytes.LastIndexByte(authority, '@')
	scheme := bytes.ToLower(b[i:j])
	if at < 0 {
		return f.findTenant(b, i, from, to, final, add)
	}
	user, password, both := bytes.Cut(authority[:at], []byte(":"))
	if bytes.IndexByte(user, '[') >= 0 { // of a synopsis
		return from, false
	}
	if !both && len(user) >= 20 && tokenLike(user, 20) && isOnePiece(user) { // only a token
		category := Token
		if _, known, _, _ := f.t.findToken(b, from, from, true); known != "" {
			category = known
		}
		add(span{from, from + at, category})
		return from + at, false
	}
	if !both || len(password) == 0 || isPlaceholder(password) {
		return from, false
	}
	end := to
	if !slices.Contains(locationSchemes, string(scheme)) {
		if end, open = urlEnd(b, to, maxAuthority, "", final); open {
			return 0, true
		}
	}
	add(span{i, end, Connection})
	if end-to >= maxAuthority {
		f.tail = Connection
	}
	return end, false
}

// locationSchemes lists URL schemes whose path is not part of the secret.
var locationSchemes = []string{"http", "https", "ftp", "ftps", "sftp", "ssh", "git", "git+ssh", "git+https", "svn",
	"ws", "wss", "smb", "rsync", "socks5", "imap", "imaps", "smtp", "smtps", "ldap", "ldaps"}

// urlEnd returns the latest possible end of a URL or a part of it.
func urlEnd(b []byte, from, most int, stops string, final bool) (end int, open bool) {
	limit := min(len(b), from+most)
	for end = from; end < limit; end++ {
		c := b[end]
		if classes[c]&(gap|quote) != 0 || strings.IndexByte("<>\\{}|^", c) >= 0 && c != '{' && c != '}' ||
			strings.IndexByte(stops, c) >= 0 || c == ')' || c == ';' {
			return end, false
		}
	}
	return end, end == len(b) && !final
}

// tenants lists service domains whose first label belongs to a customer; hooks lists hosts for which the path is the
// secret.
var (
	tenants = []string{".my.salesforce.com", ".supabase.co", ".online.tableau.com", ".snowflakecomputing.com",
		".azconfig.io", ".vault.azure.net",
		".azuredatabricks.net", ".cloud.databricks.com", ".okta.com", ".auth0.com", ".atlassian.net", ".zendesk.com",
		".freshdesk.com", ".myshopify.com",
		".cognitiveservices.azure.com", ".openai.azure.com", ".servicebus.windows.net", ".documents.azure.com", ".turso.io", ".upstash.io"}
	webhookHosts = []string{"hooks.slack.com", "hooks.zapier.com", ".webhook.office.com", "discord.com/api/webhooks",
		"discordapp.com/api/webhooks",
		"outlook.office.com/webhook", "open.feishu.cn/open-apis/bot", "open.larksuite.com/open-apis/bot", "maker.ifttt.com/trigger", "hc-ping.com"}
)

// asciiLower converts A to Z to lower case and keeps every other byte, because the length must not change; Unicode
// lower case can change it.
func asciiLower(b []byte) string {
	out := slices.Clone(b)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
}

// findTenant decides on a URL without a user.
func (f *finder) findTenant(b []byte, i, from, to int, final bool, add func(span)) (int, bool) {
	host := asciiLower(b[from:to])
	name, _, _ := strings.Cut(host, ":")
	for _, h := range webhookHosts {
		domain, _, _ := strings.Cut(h, "/")
		if name != domain && !(domain[0] == '.' && strings.HasSuffix(name, domain)) {
			continue
		}
		end, open := urlEnd(b, to, maxAuthority, "", final)
		if open {
			return 0, true
		}
		if whole := asciiLower(b[from:end]); strings.Contains(whole, strings.TrimPrefix(h, ".")) && end-to > 20 {
			add(span{i, end, Webhook})
			return end, false
		}
	}
	for _, t := range tenants {
		if strings.HasSuffix(name, t) && len(name) > len(t) {
			first, _, _ := bytes.Cut(b[from:to], []byte("."))
			add(span{i, from + len(name), f.refineCategory(Host, first)})
			return from + len(name), false
		}
	}
	return from, false
}
