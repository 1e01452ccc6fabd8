package jail

import (
	"slices"
	"strings"

	"bailey"
)

// envRules say which environment variables a runner accepts.
type envRules struct {
	fixed []string               // names that must not be set: they say where the call runs
	same  func(a, b string) bool // whether two names mean one variable
}

// cageRules hold in a cage, where TMPDIR is always /tmp. bareRules hold without one. There names are compared without
// case, since on Windows case does not matter.
var (
	cageRules = envRules{[]string{"PATH", "HOME", "USER", "TMPDIR"}, func(a, b string) bool { return a == b }}
	bareRules = envRules{append(cageRules.fixed, "TMP", "TEMP"), strings.EqualFold}
)

// addDeclared joins variables to env. If a name is repeated, the last one holds.
func (e envRules) addDeclared(env, declared []string) ([]string, error) {
	for _, v := range declared {
		name, err := e.checkVariable(v)
		if err != nil {
			return nil, err
		}
		env = append(e.without(env, name), v)
	}
	return env, nil
}

// addLent joins the lent variables to env. A name that was not planned is an error.
func (e envRules) addLent(env, planned, lent []string) ([]string, error) {
	for _, v := range lent {
		name, err := e.checkVariable(v)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(planned, name) {
			return nil, bailey.Internal.New(name+" was lent but not planned", "")
		}
	}
	return e.addDeclared(env, lent)
}

// without returns a copy of env that lacks name.
func (e envRules) without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env),
		func(v string) bool { n, _, _ := strings.Cut(v, "="); return e.same(n, name) })
}

// checkVariable returns the name in NAME=value. Its errors never contain the value, which may be a secret.
func (e envRules) checkVariable(v string) (string, error) {
	name, value, ok := strings.Cut(v, "=")
	switch {
	case !ok:
		return "", bailey.Invalid.New("an environment variable has no value", "write it as NAME=value")
	case !isValidName(name):
		return "", bailey.Invalid.Errorf("names are letters, digits and _, and do not begin with a digit",
			"%q is not an environment variable name", name)
	case strings.Contains(value, "\x00"):
		return "", bailey.Invalid.New("the value of "+name+" contains a NUL byte", "")
	case slices.ContainsFunc(e.fixed, func(f string) bool { return e.same(f, name) }):
		return "", bailey.Invalid.New(name+" is set for each call and cannot be chosen", "leave "+name+" out")
	}
	return name, nil
}

func isValidName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
