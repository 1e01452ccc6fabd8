package modelproxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// NewTransport returns the transport to providers: HTTP/2 where the provider has it, over the host's own proxy if there
// is one. It follows no redirect, does not decode, and sends no body twice.
func NewTransport(proxy func() *url.URL) *http.Transport {
	t := &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if u := proxy(); u != nil && !isLoopback(r.URL.Hostname()) {
				return u, nil
			}
			return nil, nil
		},
		DialContext:         (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 15 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 64,
		ReadBufferSize:         readSize, // many events at once, when they come faster than they are edited
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true, Protocols: new(http.Protocols),
		ExpectContinueTimeout: time.Second,
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
