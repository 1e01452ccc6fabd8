//go:build linux

package jail

import (
	"slices"
	"strings"

	"bailey"
)

// baseEnv is in the environment of every tool. From outside come only the variables that a manifest declares or a lease
// lends.
var baseEnv = [...]string{"PATH=" + searchPath, "HOME=" + homeDir, "USER=" + userName, "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
	"TZ=UTC"}

// fixedEnv lists variables that must not be set: they say where the cage is, and TMPDIR is always /tmp.
var fixedEnv = [...]string{"PATH", "HOME", "USER", "TMPDIR"}

// buildEnv joins the constants and the declared variables. If a name is repeated, the last one holds.
func buildEnv(declared []string) ([]string, error) {
	env := baseEnv[:]
	for _, v := range declared {
		name, err := checkEnv(v)
		if err != nil {
			return nil, err
		}
		env = append(withoutEnv(env, name), v)
	}
	return env, nil
}

// withHomeDir returns env with dir, the call's private directory, as HOME and TMPDIR.
func withHomeDir(env []string, dir string) []string {
	return append(withoutEnv(withoutEnv(env, "HOME"), "TMPDIR"), "HOME="+dir, "TMPDIR="+dir)
}

// addLentEnv joins the lent variables to env. A name that was not planned is an error.
func addLentEnv(env, planned, lent []string) ([]string, error) {
	for _, v := range lent {
		name, err := checkEnv(v)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(planned, name) {
			return nil, bailey.Internal.New(name+" was lent but not planned", "")
		}
		env = append(withoutEnv(env, name), v)
	}
	return env, nil
}

// withoutEnv returns a copy of env that lacks name.
func withoutEnv(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, name+"=") })
}

// checkEnv returns the name in NAME=value. Its errors never contain the value, which may be a secret.
func checkEnv(v string) (string, error) {
	name, value, ok := strings.Cut(v, "=")
	switch {
	case !ok:
		return "", bailey.Invalid.New("an environment variable lacks its value", "write it as NAME=value")
	case !validName(name):
		return "", bailey.Invalid.Errorf("names are letters, digits and _, and do not begin with a digit",
			"%q is no environment name", name)
	case strings.Contains(value, "\x00"):
		return "", bailey.Invalid.New("the value of "+name+" holds a NUL", "")
	case slices.Contains(fixedEnv[:], name):
		return "", bailey.Invalid.New(name+" is the cage's own", "leave "+name+" out")
	}
	return name, nil
}

func validName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
