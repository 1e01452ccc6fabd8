package broker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// issuedName is the directory with the handles that revoke credentials, one file for each lease. A file is on the disk
// before the journal has the loan, and is removed when the credential was revoked or has expired. So a broker that is
// killed at any step after the issuer's answer can still revoke at its next start.
const issuedName = "issued"

// maxIssued limits such a file in bytes: a value in base64, and names.
const maxIssued = 2 * MaxValue

// issuedRecord is the content of a file.
type issuedRecord struct {
	Name   string    `json:"name"` // of the lease in the table
	Mint   string    `json:"mint,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Handle []byte    `json:"handle"`
}

func (s *Server) issuedFile(lease string) string { return filepath.Join(s.Dir, issuedName, lease) }

// keepHandle writes the handle that revokes a credential. A broker that is killed leaves it to the next one. flush makes it
// durable, which must be done before the value leaves.
func (s *Server) keepHandle(e entry, handle []byte) (flush func() error, err error) {
	text, err := json.Marshal(issuedRecord{e.Name, e.Mint, e.Until, handle})
	if err != nil {
		return nil, err
	}
	defer clear(text)
	dir := filepath.Join(s.Dir, issuedName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, keepError(err)
	}
	f, err := os.OpenFile(s.issuedFile(e.ID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, keepError(err)
	}
	if _, err = f.Write(text); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, keepError(err)
	}
	return func() error {
		if err := errors.Join(f.Sync(), f.Close(), syncDir(dir)); err != nil {
			return keepError(err)
		}
		return nil
	}, nil
}

func keepError(err error) error {
	return unavailableError(err, "check the disk and the owner of the broker's directory",
		"cannot store what revokes a credential, so it is not lent")
}

// takeHandles returns the leases that an earlier process left in the directory, by their ids. A file that was not
// written whole cannot be used.
func (s *Server) takeHandles() map[string]issuedRecord {
	all := map[string]issuedRecord{}
	names, err := os.ReadDir(filepath.Join(s.Dir, issuedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("cannot read what revokes credentials", "err", err)
	}
	for _, n := range names {
		text, err := readPrivate(s.issuedFile(n.Name()), maxIssued)
		if err != nil { // perhaps it can be read at the next start
			s.Log.Warn("cannot read what revokes a credential", "lease", n.Name(), "err", err)
			continue
		}
		var r issuedRecord
		if err := json.Unmarshal(text, &r); err != nil || !strings.HasPrefix(n.Name(), "l-") {
			s.Log.Warn("what revokes a credential was not written whole", "lease", n.Name())
			os.Remove(s.issuedFile(n.Name()))
			continue
		}
		all[n.Name()] = r
	}
	return all
}
