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
	// Settings are the person's own, of those that IsPersonal names, by their names in lower case. They are no secrets.
	Settings map[string]string
}

// NeedsPerson reports whether a call uses settings of the person.
func (m *Capability) NeedsPerson() bool {
	return m.spec.Backend.Repository != "" || slices.Contains(m.spec.Backend.Args, defaultBranch)
}

// Arguments in a manifest that ForPerson replaces: the first branch of a repository that git init makes, and the value of
// the variable that git config shows, the last argument.
const (
	defaultBranch = "init.defaultBranch=master"
	personDefault = "--default=person's"
)

// IsPersonal reports whether a call may show a variable of the person's configuration: one that says how the person works, and
// holds no secret, as an alias, a credential helper and an address may. The name is in lower case.
func IsPersonal(name string) bool {
	return slices.Contains(strings.Fields(`user.name user.email user.signingkey init.defaultbranch pull.rebase pull.ff push.default
	push.autosetupremote push.followtags fetch.prune rebase.autostash rebase.autosquash rebase.updaterefs merge.ff
	merge.conflictstyle merge.tool core.autocrlf core.eol core.filemode core.ignorecase core.quotepath core.editor core.pager
	core.excludesfile core.abbrev commit.gpgsign tag.gpgsign tag.sort gpg.format diff.algorithm diff.renames diff.colormoved
	diff.tool color.ui log.date branch.autosetupmerge branch.autosetuprebase branch.sort rerere.enabled`), name)
}

var signings = map[string]string{"commit": "commit", "tag": "tag"}

// noIgnore is the argument by which git reads no ignore file outside of the repository.
const noIgnore = "core.excludesFile=/dev/null"

// ForPerson returns the arguments with the person's ignore file in place of none, and with what else is the person's.
func (m *Capability) ForPerson(args []string, p GitPerson) []string {
	if i := slices.Index(args, personDefault); i >= 0 {
		return withSetting(args, i, p.Settings[strings.ToLower(args[len(args)-1])])
	}
	args = slices.Clone(args)
	branch, at := p.Settings["init.defaultbranch"], slices.Index(args, defaultBranch)
	if at > 0 && args[at-1] == "-c" && branch != "" { // the manifest's own setting, which stands before the verb
		args[at] = "init.defaultBranch=" + oneLine(branch)
	}
	if p.Ignore == nil {
		return args
	}
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

// withSetting puts the value of the person for the variable at the end into the arguments of git config. It does not count if the
// call is about all values, their origin, or the repository's own file alone.
func withSetting(args []string, at int, value string) []string {
	own := func(a string) bool {
		return slices.Contains([]string{"--get-all", "--show-origin", "--no-includes"}, a) || strings.HasPrefix(a, "--default=")
	}
	rest := slices.Delete(slices.Clone(args), at, at+1)
	if value == "" || slices.ContainsFunc(rest, own) {
		return rest
	}
	return slices.Insert(rest, at, "--default="+oneLine(value), "--get")
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
