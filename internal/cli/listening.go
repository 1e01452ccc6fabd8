package cli

import (
	"crypto/tls"
	"net"
	"slices"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/strangers"
	"bailey/internal/terminal"
)

// listening holds the flags of an HTTP interface. Without a certificate it is reachable from this machine only.
type listening struct {
	cert, key      string
	hosts, origins []string
}

func (l *listening) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.cert, "cert", "", "a certificate, a PEM `file`")
	f.StringVar(&l.key, "key", "", "its key, a PEM `file`")
	f.StringArrayVar(&l.hosts, "host", nil, "a `name`, with its port, that the door is reached by")
	f.StringArrayVar(&l.origins, "origin", nil, "an `origin` whose pages may ask, as https://console.example")
}

// check returns an error if other machines could reach the address without TLS.
func (l *listening) check(address string) error {
	if (l.cert == "") != (l.key == "") {
		return &bailey.Error{Kind: bailey.Invalid, Message: "--cert and --key go together", Hint: "give both, or neither"}
	}
	if err := CheckLoopback(address); err != nil && l.cert == "" {
		return &bailey.Error{Kind: bailey.Invalid, Message: terminal.Shown(address) + " is no loopback address and port, and there is no certificate", Hint: "listen on 127.0.0.1:PORT, or give --cert and --key"}
	}
	return nil
}

// listen listens on a TCP address. Accepted connections count as unauthenticated until the interface has identified
// them.
func (l *listening) listen(address string) (net.Listener, error) {
	at, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "nothing can listen on " + terminal.Shown(address), Err: err, Hint: "name another address"}
	}
	return strangers.New(strangers.Usual).Listener(at, nil), nil
}

// secured wraps the listener with TLS, if there is a certificate.
func (l *listening) secured(at net.Listener) (net.Listener, error) {
	if l.cert == "" {
		return at, nil
	}
	pair, err := tls.LoadX509KeyPair(l.cert, l.key)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "the certificate cannot be used", Err: err, Hint: "--cert and --key are PEM files that belong together"}
	}
	return tls.NewListener(at, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
}

func (l *listening) scheme() string {
	if l.cert != "" {
		return "https"
	}
	return "http"
}

// names returns the accepted host names, with ports, and the origins whose pages may send requests: those of the flags,
// the address itself and, on a loopback address, localhost. Any other name is rejected, for example one that an
// attacker points at this machine (DNS rebinding).
func (l *listening) names(addr net.Addr) (hosts, origins []string) {
	hosts = append(slices.Clone(l.hosts), addr.String())
	if host, port, err := net.SplitHostPort(addr.String()); err == nil && net.ParseIP(host).IsLoopback() {
		hosts = append(hosts, net.JoinHostPort("localhost", port))
	}
	origins = slices.Clone(l.origins)
	for _, host := range hosts {
		origins = append(origins, l.scheme()+"://"+host)
	}
	return hosts, origins
}
