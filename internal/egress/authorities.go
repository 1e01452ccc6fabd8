package egress

import (
	"errors"
	"io/fs"
	"os"

	"bailey"
)

// bundles are where systems keep all authorities that they believe, in one file: Debian, Fedora, openSUSE, Alpine.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// Authorities are those that the machine believes, in PEM.
func Authorities() ([]byte, error) {
	for _, path := range bundles {
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			return text, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "the authorities of this machine cannot be read", Err: err}
		}
	}
	return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "this machine has no file of authorities that TLS could believe", Hint: "install the package ca-certificates"}
}
