package egress

import (
	"errors"
	"io/fs"
	"os"

	"bailey"
)

// caBundles lists the files in which distributions keep all trusted certificate authorities: Debian, Fedora, openSUSE,
// Alpine.
var caBundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// Authorities returns the certificate authorities that this machine trusts, in PEM.
func Authorities() ([]byte, error) {
	for _, path := range caBundles {
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			return text, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, bailey.Unavailable.Wrap(err, "the authorities of this machine cannot be read", "")
		}
	}
	return nil, bailey.Unavailable.New("this machine has no file of authorities that TLS could believe",
		"install the package ca-certificates")
}
