package pack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bailey"
)

// GitSigning holds the person's own settings of git about signatures. A repository can set none of them.
type GitSigning struct {
	Format     string // gpg.format; "" is openpgp
	Key        string // user.signingKey, as written; "" if it is not set
	Program    string // gpg.program or gpg.ssh.program, as written; "" if it is not set
	KeyCommand bool   // gpg.ssh.defaultKeyCommand is set
	// Name and Email are those of the person alone, also if the repository has others.
	Name, Email string
	// Fault is why nothing can be signed in this repository: for example, it sets another user.name. Nil if it can.
	Fault error
}

// Signing says what a call may have signed.
type Signing struct {
	Kind         string // commit or tag
	Most         int    // signatures at most
	OtherAuthors bool   // the command keeps the authors and the dates of commits, or was told others
}

// maxSeries limits the signatures of a command that makes a commit of each of several commits.
const maxSeries = 256

// GitKey is a key that signs for a call, and how git in the cage asks for it. It holds nothing secret.
type GitKey struct {
	Format      string // openpgp or ssh
	Public      string // user.signingKey in the cage
	Fingerprint string
	Holder      string // what signs, for a person: the ssh agent, gpg, or a key file
	Program     string // the program that git runs to sign
	Address     string // the address in the cage at which that program asks the gateway
}

// Words describes what a call signs, for a person.
func (s Signing) Words(k GitKey, p GitPerson) string {
	count := "one " + s.Kind
	if s.Most > 1 {
		count = fmt.Sprintf("up to %d %ss", s.Most, s.Kind)
	}
	return fmt.Sprintf("signs %s as %s <%s> with the key %s (%s)", count, oneLine(p.Signing.Name),
		oneLine(p.Signing.Email), k.Fingerprint, k.Holder)
}

// Words by which a command line says whether to sign. -s means --signoff for a commit.
var signWords = map[string][2][]string{
	"commit": {{"-S", "--gpg-sign"}, {"--no-gpg-sign"}},
	"tag":    {{"-s", "--sign"}, {"--no-sign"}},
}

// PlanSigning returns what a call signs, or nil if it signs nothing. args are rendered. It refuses a call if it is not
// known whether to sign, or if the repository is not the person's to sign in.
func (m *Capability) PlanSigning(args []string, input map[string]any, p GitPerson) (*Signing, error) {
	kind := m.spec.Backend.Signs
	if kind == "" || slices.Contains(args, "--ff-only") { // which makes no commit
		return nil, nil
	}
	wanted := p.SignCommits
	if kind == "tag" {
		wanted = p.SignTags || p.SignNoted && input["message"] != nil && input["annotate"] == nil
	}
	said := false
	for _, word := range optionWords(input) {
		switch on, off := signWords[kind][0], signWords[kind][1]; {
		case slices.Contains(on, word):
			wanted, said = true, true
		case slices.Contains(off, word):
			wanted, said = false, true
		}
	}
	switch {
	case !said && p.Unknown != nil:
		return nil, bailey.Denied.Wrapf(p.Unknown,
			"correct that file, or take out what it includes; git config --list --show-origin shows all",
			"it is not known whether the %s must be signed", kind)
	case !wanted:
		return nil, nil
	case p.Signing.Fault != nil:
		return nil, p.Signing.Fault
	}
	s := &Signing{Kind: kind, Most: 1, OtherAuthors: input["author"] != nil}
	verb, rest := splitVerb(args)
	if slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "--exec") }) {
		return nil, bailey.Denied.Errorf("run this command yourself, or repeat it with --no-gpg-sign",
			"the commits must be signed, and a call that runs commands of its own between them could have anything signed")
	}
	switch verb {
	case "rebase", "cherry-pick", "revert", "pull", "am":
		s.Most, s.OtherAuthors = maxSeries, true
	}
	for _, a := range rest {
		s.OtherAuthors = s.OtherAuthors || a == "--amend" || strings.HasPrefix(a, "--date=")
	}
	return s, nil
}

// optionWords returns the words of the inputs that hold options of git, in their order.
func optionWords(input map[string]any) (words []string) {
	for _, name := range []string{"options", "more"} {
		list, _ := input[name].([]any)
		for _, v := range list {
			if s, ok := v.(string); ok {
				words = append(words, s)
			}
		}
	}
	return words
}

// splitVerb returns the command in the arguments of git, and the arguments after it up to "--".
func splitVerb(args []string) (verb string, rest []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-c":
			i++ // its value
		case !strings.HasPrefix(args[i], "-"):
			rest = args[i+1:]
			if end := slices.Index(rest, "--"); end >= 0 {
				rest = rest[:end]
			}
			return args[i], rest
		}
	}
	return "", nil
}

// SignArgs returns the arguments with which git signs through the program of the key. In those of a manifest it does
// not sign.
func (m *Capability) SignArgs(args []string, s Signing, k GitKey) []string {
	settings := map[string]string{"gpg.program=false": "gpg.program=" + k.Program,
		"gpg.ssh.program=false": "gpg.ssh.program=" + k.Program}
	if s.Kind == "commit" {
		settings["commit.gpgSign=false"] = "commit.gpgSign=true"
	}
	verb, rest := splitVerb(args)
	start := len(args)
	if verb != "" {
		start = slices.Index(args, verb)
	}
	out := make([]string, 0, len(args)+1)
	for i, a := range args {
		words := signWords[s.Kind]
		switch value, set := settings[a]; {
		case i < start && set && i > 0 && args[i-1] == "-c":
			a = value
		case i > start && i <= start+len(rest) && (slices.Contains(words[0], a) || slices.Contains(words[1], a)):
			continue
		}
		if out = append(out, a); i == start && s.Kind == "tag" {
			out = append(out, "--sign")
		}
	}
	return out
}

// SetSigning gives a job the settings with which git asks for signatures, the program that it runs for that, and the
// socket of the gateway. They outrank the configuration of the repository (git-config(1), ENVIRONMENT).
func (m *Capability) SetSigning(j *bailey.Job, k GitKey) {
	settings := [][2]string{{"gpg.format", k.Format}, {"user.signingKey", k.Public}, {"gpg.program", k.Program},
		{"gpg.openpgp.program", k.Program}, {"gpg.ssh.program", k.Program}}
	j.Env = append(slices.Clone(j.Env), "GIT_CONFIG_COUNT="+strconv.Itoa(len(settings)))
	for i, s := range settings {
		n := strconv.Itoa(i)
		j.Env = append(j.Env, "GIT_CONFIG_KEY_"+n+"="+s[0], "GIT_CONFIG_VALUE_"+n+"="+s[1])
	}
	j.Exec = append(slices.Clone(j.Exec), k.Program)
	var network bailey.Network
	if j.Network != nil {
		network = *j.Network
	}
	network.Listen = append(slices.Clone(network.Listen), bailey.Listen{Network: "tcp", Address: k.Address})
	j.Network = &network
}
