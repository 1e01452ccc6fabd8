package pack

import (
	"slices"
	"strings"

	"bailey"
)

// GitPerson holds the settings of git that a person has and that a call in a repository uses. The cage shows none of the
// files in which they stand.
type GitPerson struct {
	Name, Email string // "" if not configured
	SignCommits bool
	SignTags    bool
	SignNoted   bool          // tag.forceSignAnnotated: tags with a message, unless the command line says that they have one
	Unknown     error         // why it is not known whether to sign; nil if it is known
	Ignore      *bailey.Place // file of core.excludesFile, read-only; nil if there is none
	Signing     GitSigning
}

// NeedsPerson reports whether a call uses settings of the person.
func (m *Capability) NeedsPerson() bool { return m.spec.Backend.Repository != "" }

var signings = map[string]string{"commit": "commit", "tag": "tag"}

// noIgnore is the argument by which git reads no ignore file outside of the repository.
const noIgnore = "core.excludesFile=/dev/null"

// ForPerson returns the arguments with the person's ignore file in place of none.
func (m *Capability) ForPerson(args []string, p GitPerson) []string {
	if p.Ignore == nil {
		return args
	}
	args = slices.Clone(args)
	for i, a := range args {
		if a == "--" {
			break
		}
		if a == noIgnore && i > 0 && args[i-1] == "-c" {
			args[i] = "core.excludesFile=" + p.Ignore.Path
		}
	}
	return args
}

// SetPerson gives a job the name and the address of the person instead of those in the manifest, and the ignore file.
func (m *Capability) SetPerson(j *bailey.Job, p GitPerson) {
	if p.Name != "" && p.Email != "" {
		j.Env = slices.Clone(j.Env)
		for i, v := range j.Env {
			switch name, _, _ := strings.Cut(v, "="); name {
			case "GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME":
				j.Env[i] = name + "=" + oneLine(p.Name)
			case "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL":
				j.Env[i] = name + "=" + oneLine(p.Email)
			}
		}
	}
	visible := func(o bailey.Place) bool { return strings.HasPrefix(p.Ignore.Path, o.Path+"/") }
	if p.Ignore != nil && !slices.ContainsFunc(j.Places, visible) {
		j.Places = append(slices.Clone(j.Places), *p.Ignore)
	}
}

// oneLine takes out what git would not accept in a name either.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
