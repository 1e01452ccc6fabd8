package server

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/localapi"
	"bailey/internal/safefile"
	"bailey/internal/settings"
	"bailey/internal/sshsig"
)

// approver determines the approver of an answer from the current settings. If the settings name approvers, one of them
// must have signed the answer. Otherwise the answer counts as the operator's own.
func (s *Server) approver(text []byte, g approve.Given) (approve.Approver, error) {
	var trusted []settings.Approver
	if s.desk != nil {
		trusted = s.desk.settings.Applied().Approvers
	}
	return proven(text, g, trusted)
}

func proven(text []byte, g approve.Given, trusted []settings.Approver) (a approve.Approver, err error) {
	switch {
	case g.Signature == "" && len(trusted) > 0:
		return a, &bailey.Error{Kind: bailey.Denied, Message: settings.FileName + " names approvers, and this answer is not signed",
			Hint: fmt.Sprintf("bailey approve %s --key FILE", g.Question)}
	case g.Signature == "":
		return approve.Approver{Name: cmp.Or(g.Person, "an operator"), Level: bailey.Local}, nil
	case len(trusted) == 0:
		return a, &bailey.Error{Kind: bailey.Denied, Message: "nobody is trusted to sign an answer", Hint: "name keys under approvers in " + settings.FileName + ", then bailey init --apply; or answer without a key"}
	}
	keys, err := sshsig.ParseKeys([]byte(lines(trusted)))
	if err != nil {
		return a, err
	}
	by, err := sshsig.Verify(text, []byte(g.Signature), canon.Namespace, keys)
	if err != nil {
		return a, &bailey.Error{Kind: bailey.KindOf(err), Message: "the answer's signature", Err: err, Hint: bailey.HintOf(err)}
	}
	a = approve.Approver{Name: by.Name, Level: bailey.SignedSoftware, Key: by.Key}
	if by.Touch {
		a.Level = bailey.SignedTouch
	}
	for i, k := range keys { // keys and trusted have the same order and length
		if k.Fingerprint() == by.Key {
			a.Roles = trusted[i].Roles
		}
	}
	return a, nil
}

// lines returns the keys of approvers in the format that package sshsig parses.
func lines(approvers []settings.Approver) string {
	var b strings.Builder
	for _, a := range approvers {
		b.WriteString(a.Line() + "\n")
	}
	return b.String()
}

// saltName is the file of the home with the salt of the commitments in questions. If it is lost, they can no longer be
// verified.
const saltName = "approvals.salt"

const saltSize = 32

// openSalt reads the salt of the home, or creates it.
func openSalt(home localapi.Home) ([]byte, error) {
	name := filepath.Join(string(home), saltName)
	var salt []byte
	info, err := os.Lstat(name)
	if err == nil && info.Mode().IsRegular() { // another file type, for example a pipe, could block the gateway
		salt, err = os.ReadFile(name)
	}
	switch {
	case err == nil && len(salt) == saltSize:
		return salt, nil
	case err == nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: saltName + " is not what was written there",
			Hint: "put it back from a copy of the home; or take it away: the next start makes another, and what was asked until now can no longer be held against its arguments"}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: saltName + " cannot be read", Hint: "look at its owner and mode", Err: err}
	}
	salt = make([]byte, saltSize)
	rand.Read(salt) // never fails (crypto/rand)
	root, err := os.OpenRoot(string(home))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return salt, safefile.Replace(root, saltName, salt, 0o600, func() error { return nil })
}
