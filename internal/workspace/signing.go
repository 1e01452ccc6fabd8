package workspace

import (
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/gitremote"
	"bailey/pack"
)

func lastValue(entries []gitremote.Entry, section, sub, key string) (v string, set bool) {
	for _, e := range entries {
		if e.Section == section && e.Sub == sub && e.Key == key {
			v, set = e.Value, true
		}
	}
	return v, set
}

// ownSigning returns the settings of the person about signatures. It must be called before those of a repository are
// added.
func (s *gitSettings) ownSigning() (g pack.GitSigning) {
	g.Name, _ = s.lastValue("user", "name")
	g.Email, _ = s.lastValue("user", "email")
	g.Format, _ = s.lastValue("gpg", "format")
	g.Key, _ = s.lastValue("user", "signingkey")
	if strings.HasPrefix(g.Key, "~/") {
		g.Key = filepath.Join(s.home, g.Key[2:])
	}
	g.Program, _ = s.lastValue("gpg", "program")
	if sub := strings.ToLower(g.Format); sub == "" || sub == "openpgp" {
		if v, set := lastValue(s.entries, "gpg", "openpgp", "program"); set {
			g.Program = v
		}
	} else {
		g.Program, _ = lastValue(s.entries, "gpg", sub, "program")
	}
	_, g.KeyCommand = lastValue(s.entries, "gpg", "ssh", "defaultkeycommand")
	switch {
	case s.unsure != nil:
		g.Fault = bailey.Denied.Wrap(s.unsure, "it is not known as whom and with which key to sign",
			"set user.name, user.email and user.signingKey in ~/.gitconfig itself, or in a file included with gitdir:")
	case g.Name == "" || g.Email == "":
		g.Fault = bailey.Denied.New("nothing can be signed: your own settings of git have no user.name or no user.email",
			`run git config --global user.name "NAME" and git config --global user.email ADDRESS`)
	}
	return g
}

// namesSigner reports whether a variable says as whom, with which key or by which program to sign.
func namesSigner(e gitremote.Entry) bool {
	switch e.Section {
	case "user", "author", "committer":
		return e.Key == "name" || e.Key == "email" || e.Key == "signingkey"
	case "gpg":
		return e.Key == "format" || e.Key == "program" || e.Key == "defaultkeycommand"
	}
	return false
}

// foreignIdentity returns an error if a repository sets as whom or with which key to sign, unless the person has the
// same value. Its configuration may be hostile, and must select neither a person nor a key.
func foreignIdentity(own, repository []gitremote.Entry) error {
	for _, e := range repository {
		if !namesSigner(e) {
			continue
		}
		if v, set := lastValue(own, e.Section, e.Sub, e.Key); set && v == e.Value {
			continue
		}
		name := e.Name()
		what := "another " + name
		if e.Section == "user" {
			what = "another user.name or user.email"
			if e.Key == "signingkey" {
				what = "another user.signingKey"
			}
		}
		return bailey.Denied.Errorf("commit there yourself, or take it out: git config --unset "+name,
			"the repository sets %s than you have, and a call signs only as you and with your key", what)
	}
	return nil
}
