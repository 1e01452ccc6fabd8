package settings

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// Notify says how users are notified of an approval request. The zero value notifies no user.
type Notify struct {
	Desktop bool   `json:"desktop,omitempty"`
	Webhook string `json:"webhook,omitempty"` // scheme, host and the first digits of the SHA-256 of URL
	// URL is the complete webhook. Many receivers authenticate the sender by it, so it must not be in the ledger.
	URL bailey.Secret `json:"-"`
}

// maxURL is the maximum length of a webhook's URL in bytes.
const maxURL = 1024

func notifyOf(n ast.Node) (c Notify, err error) {
	err = each(n, "way to notify", keys{
		"desktop": truth("desktop", &c.Desktop),
		"webhook": func(n ast.Node) error {
			err := each(n, "part of a webhook", keys{"url": func(n ast.Node) (err error) { c.Webhook, c.URL, err = webhookOf(n); return err }})
			if err == nil && c.Webhook == "" {
				err = fault(n, "a webhook has a url")
			}
			return err
		},
	})
	return c, err
}

// webhookOf reads a URL, which must be https, or http to this machine. No error quotes it.
func webhookOf(n ast.Node) (shown string, whole bailey.Secret, err error) {
	text, err := wordOf(n, maxURL)
	if err != nil {
		return "", whole, err
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || !plain(text):
		return "", whole, fault(n, "the url of a webhook is no url")
	case u.User != nil || u.Fragment != "":
		return "", whole, fault(n, "the url of a webhook has neither a user nor a fragment")
	case u.Scheme != "https" && !(u.Scheme == "http" && here(u.Hostname())):
		return "", whole, fault(n, "the url of a webhook is https, or http of this machine (127.0.0.1, [::1], localhost)")
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s://%s %x", u.Scheme, u.Host, sum[:4]), bailey.NewSecret(text), nil
}

// here reports whether a host names this machine. It checks only the name; the address is checked when the webhook is
// called.
func here(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
