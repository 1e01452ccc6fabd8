package cli

import (
	"net"

	"bailey"
	"bailey/internal/terminal"
)

// CheckLoopback returns an error if other machines can reach the address, which then needs a certificate.
func CheckLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsLoopback() {
		return nil
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: terminal.Shown(addr) + " is no loopback address and port, and there is no certificate", Err: err,
		Hint: "listen on 127.0.0.1:PORT, or give --tls-cert and --tls-key"}
}
