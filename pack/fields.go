package pack

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Grammars of names. A capability's id is at most 129 characters of these and one dot.
var (
	packName       = lazy(`^[a-z][a-z0-9-]{0,63}$`)
	capabilityName = lazy(`^([a-z][a-z0-9-]{0,63}\.)?[a-z][a-z0-9_-]{0,63}$`)
	inputName      = lazy(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	envName        = lazy(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	version        = lazy(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)
	headerName     = lazy(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)
	parameterName  = lazy(`^[A-Za-z0-9_][A-Za-z0-9_.~-]{0,63}$`)
	program        = lazy(`^[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}$`)
)

// The words of each class, published spellings included.
var (
	risks       = map[string]Risk{"low": Low, "medium": Medium, "high": High, "critical": Critical}
	sideEffects = map[string]SideEffect{"none": None, "readOnly": ReadOnly, "read_only": ReadOnly, "readonly": ReadOnly,
		"additive": Additive, "mutating": Mutating, "write_remote": Mutating, "destructive": Destructive}
	reversibilities = map[string]Reversibility{"readOnly": NothingDone, "read_only": NothingDone, "readonly": NothingDone,
		"reversible": Reversible, "externallyReversible": ExternallyReversible, "irreversible": Irreversible}
	isolations = map[string]Isolation{"builtin": Builtin, "jail": Jail, "warm_worker": Jail, "microvm": MicroVM, "none": Open}
	backends   = map[string]string{"subprocess": "subprocess", "builtin": "builtin", "mcp": "mcp", "remote": "remote", "sandbox": "sandbox", "agent": "agent", "workflow": "workflow"}
)

// word reads a string of the given grammar.
func (r *reader) word(what string, grammar *regexp.Regexp, p *string) func(ast.Node) {
	return func(n ast.Node) {
		var v string
		before := len(r.faults)
		r.text(what, &v)(n)
		if len(r.faults) > before {
			return
		}
		if !grammar.MatchString(v) {
			r.fault(tokenOf(n), "%s %q does not match %s", what, clip(v), grammar)
			return
		}
		*p = v
	}
}

// names reads a list of words of the given grammar, each once.
func (r *reader) names(what string, grammar *regexp.Regexp, p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.items(n, what) {
			var v string
			r.word(what, grammar, &v)(item)
			if slices.Contains(*p, v) {
				r.fault(tokenOf(item), "%s names %q twice", what, clip(v))
			}
			*p = append(*p, v)
		}
	}
}

// id is pack, dot, name. A name that holds a dot is a full id: of the same pack, or of a built-in one.
func (r *reader) id(n ast.Node, pack, name string) string {
	prefix, _, full := strings.Cut(name, ".")
	if name == "" || !full {
		return pack + "." + name
	}
	if prefix != pack && !r.builtin {
		r.fault(tokenOf(n), "capability %s is not of pack %s; write the name alone", name, pack)
	}
	return name
}

// cannot refuses a field that says something this version would have to ignore.
func (r *reader) cannot(do string) func(ast.Node) {
	return func(n ast.Node) {
		if _, null := n.(*ast.NullNode); !null {
			r.fault(tokenOf(n), "this version cannot %s", do)
		}
	}
}

// cannotList is cannot for a list or a mapping, which may be empty.
func (r *reader) cannotList(do string) func(ast.Node) {
	return func(n ast.Node) {
		switch l := n.(type) {
		case *ast.SequenceNode:
			if len(l.Values) == 0 {
				return
			}
		case *ast.MappingNode:
			if len(l.Values) == 0 {
				return
			}
		}
		r.cannot(do)(n)
	}
}

func (r *reader) isolation(p *Isolation) func(ast.Node) {
	return func(n ast.Node) {
		if s, ok := n.(*ast.StringNode); ok && s.Value == "firecracker" {
			r.fault(s.Token, "isolation firecracker is not known; use microvm")
			return
		}
		choice(r.source, "isolation", isolations, p)(n)
		if *p != Jail {
			r.fault(tokenOf(n), "this version cannot run isolation %s, only jail", *p)
		}
	}
}

func (r *reader) stdin(n ast.Node) {
	var v string
	choice(r.source, "stdin", map[string]string{"none": "none", "text": "text", "file": "file"}, &v)(n)
	if v == "text" || v == "file" {
		r.fault(tokenOf(n), "this version cannot pass stdin: %s", v)
	}
}

const maxTimeout = 24 * time.Hour

func (r *reader) timeout(p *time.Duration) func(ast.Node) {
	return func(n ast.Node) {
		var v string
		before := len(r.faults)
		r.text("timeout", &v)(n)
		if len(r.faults) > before {
			return
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < time.Millisecond || d > maxTimeout {
			r.fault(tokenOf(n), "timeout wants a duration such as \"30s\", up to 24h, found %q", clip(v))
			return
		}
		*p = d
	}
}

// pattern reads argvPattern: one text or a list of them.
func (r *reader) pattern(p *[]string) func(ast.Node) {
	return func(n ast.Node) {
		if _, list := n.(*ast.SequenceNode); list {
			r.texts("argvPattern", p)(n)
			return
		}
		var v string
		r.text("argvPattern", &v)(n)
		*p = []string{v}
	}
}

func (r *reader) credentials(p *[]credential, at *nodes) func(ast.Node) {
	return func(n ast.Node) {
		for _, item := range r.items(n, "credentials") {
			var c credential
			seen := r.fields(item, "a credential", map[string]func(ast.Node){
				"name":   r.word("name", inputName(), &c.Name),
				"env":    r.word("env", envName(), &c.Env),
				"file":   r.flag("file", &c.File),
				"inject": r.injected(at, &c.Inject),
			})
			r.need(item, "a credential", seen, "name", "env")
			if c.File && c.Inject != nil {
				r.fault(tokenOf(item), "credential %s is both a file and injected: the tool has it, or it has not", c.Name)
			}
			r.variable(item, c.Env)
			if slices.ContainsFunc(*p, func(o credential) bool { return o.Env == c.Env }) {
				r.fault(tokenOf(item), "two credentials arrive in %s", c.Env)
			}
			*p = append(*p, c)
		}
	}
}
