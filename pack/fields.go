package pack

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// Grammars of names. A capability id has at most 129 of these characters, including one dot.
var (
	packName       = lazyRegexp(`^[a-z][a-z0-9-]{0,63}$`)
	capabilityName = lazyRegexp(`^([a-z][a-z0-9-]{0,63}\.)?[a-z][a-z0-9_-]{0,63}$`)
	inputName      = lazyRegexp(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	envName        = lazyRegexp(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	version        = lazyRegexp(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)
	headerName     = lazyRegexp(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	parameterName  = lazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9_.~-]{0,63}$`)
	program        = lazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}$`)
)

// Words of each class, including published spellings.
var (
	risks       = map[string]Risk{"low": Low, "medium": Medium, "high": High, "critical": Critical}
	sideEffects = map[string]SideEffect{"none": None, "readOnly": ReadOnly, "read_only": ReadOnly, "readonly": ReadOnly,
		"additive": Additive, "mutating": Mutating, "write_remote": Mutating, "destructive": Destructive}
	reversibilities = map[string]Reversibility{"readOnly": NothingDone, "read_only": NothingDone,
		"readonly":   NothingDone,
		"reversible": Reversible, "externallyReversible": ExternallyReversible, "externally_reversible": ExternallyReversible, "irreversible": Irreversible}
	isolations = map[string]Isolation{"builtin": Builtin, "jail": Jail, "warm_worker": Jail, "microvm": MicroVM,
		"none": Open}
	backends = map[string]string{"subprocess": "subprocess", "builtin": "builtin", "mcp": "mcp", "remote": "remote",
		"sandbox": "sandbox", "agent": "agent", "workflow": "workflow", "model": "model"}
)

// wordField reads a string that must match the grammar.
func (r *reader) wordField(what string, grammar *regexp.Regexp, p *string) func(ast.Node) {
	return func(n ast.Node) {
		v, ok := r.ReadText(n, what)
		if !ok {
			return
		}
		if !grammar.MatchString(v) {
			r.AddFault(n, "%s %q does not match %s", what, strictyaml.Clip(v), grammar)
			return
		}
		*p = v
	}
}

// wordsField reads a list of words that must match the grammar, without duplicates.
func (r *reader) wordsField(what string, grammar *regexp.Regexp, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.Items(n, what) {
			var v string
			r.wordField(what, grammar, &v)(item)
			if slices.Contains(*p, v) {
				r.AddFault(item, "%s names %q twice", what, strictyaml.Clip(v))
			}
			*p = append(*p, v)
		}
	}
}

// qualifyID returns pack, dot, name. A name with a dot is a full id, which must be in the same pack unless the pack is
// built-in.
func (r *reader) qualifyID(n ast.Node, pack, name string) string {
	prefix, _, full := strings.Cut(name, ".")
	if name == "" || !full {
		return pack + "." + name
	}
	if prefix != pack && !r.builtin {
		r.AddFault(n, "capability %s is not of pack %s; write only the name", name, pack)
	}
	return name
}

// cannotList refuses a non-empty list or mapping, because this version would have to ignore it.
func (r *reader) cannotList(why string) func(ast.Node) {
	return func(n ast.Node) {
		switch l := n.(type) {
		case *ast.NullNode:
			return
		case *ast.SequenceNode:
			if len(l.Values) == 0 {
				return
			}
		case *ast.MappingNode:
			if len(l.Values) == 0 {
				return
			}
		}
		r.AddFault(n, "%s", why)
	}
}

func (r *reader) isolationField(p *Isolation) func(ast.Node) {
	return func(n ast.Node) {
		if s, ok := n.(*ast.StringNode); ok && s.Value == "firecracker" {
			r.AddFault(s, "isolation firecracker is not known; use microvm")
			return
		}
		choiceField(r, "isolation", isolations, p)(n)
		if *p == Builtin {
			r.AddFault(n, "isolation builtin is reserved for the gateway itself; use jail")
		}
	}
}

const maxTimeout = 24 * time.Hour

func (r *reader) timeoutField(p *time.Duration) func(ast.Node) {
	return func(n ast.Node) {
		v, ok := r.ReadText(n, "timeout")
		if !ok {
			return
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Millisecond || d > maxTimeout {
			r.AddFault(n, "timeout must be a duration such as \"30s\", up to 24h, not %q", strictyaml.Clip(v))
			return
		}
		*p = d
	}
}

// argvPatternField reads argvPattern: one text or a list of them.
func (r *reader) argvPatternField(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		if _, list := n.(*ast.SequenceNode); list {
			strictyaml.TextsField(r.File, "argvPattern", p)(n)
			return
		}
		v, _ := r.ReadText(n, "argvPattern")
		*p = []string{v}
	}
}

func (r *reader) credentialsField(p *[]credential, at *deferredNodes) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.Items(n, "credentials") {
			var c credential
			seen := r.Fields(item, "a credential", strictyaml.Fields{
				"name":   r.wordField("name", inputName(), &c.Name),
				"env":    r.wordField("env", envName(), &c.Env),
				"file":   r.BoolField("file", &c.File),
				"inject": r.injectField(at, &c.Inject),
			})
			r.requireKeys(item, "a credential", seen, "name", "env")
			switch {
			case c.Inject == nil:
			case c.Inject.Sign != "" && !c.File:
				r.AddFault(item, "credential %s signs requests and must be a file", c.Name)
			case c.Inject.Tokens != "" && !c.File:
				r.AddFault(item, "credential %s has tokens and must be a file", c.Name)
			case c.Inject.Sign == "" && c.Inject.Tokens == "" && c.File:
				r.AddFault(item, "credential %s is both a file and injected, but not both", c.Name)
			}
			r.checkVariable(item, c.Env)
			if slices.ContainsFunc(*p, func(o credential) bool { return o.Env == c.Env }) {
				r.AddFault(item, "two credentials use %s", c.Env)
			}
			*p = append(*p, c)
		}
	}
}

// lazyRegexp compiles a pattern at its first use. Otherwise every start of the program would compile all patterns.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
