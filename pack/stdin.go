package pack

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"bailey"
)

// promised is the part of a manifest that says what goes in and what comes out, beside the arguments.
type promised struct {
	Stdin      string      `json:"stdin,omitempty"` // text, file; "" is none
	Validators []validator `json:"validators,omitempty"`
	Output     *output     `json:"output,omitempty"`
}

// promises are its nodes, which are read once the inputs are known.
type promises struct{ stdin, validators, outputSchema, output ast.Node }

// MaxStdin bounds what a tool reads, in bytes, be it a text or a file.
const MaxStdin = 10 << 20

// StdinInput is the input that becomes the tool's stdin, where the key stdin says so.
const StdinInput = "stdin"

var (
	stdins = map[string]string{"none": "", "text": "text", "file": "file"}
	cwds   = map[string]string{"workspace": "workspace", "none": "none"}
)

// Stdin returns the text that the tool reads, of a checked input; ok is false where it reads none.
func (m *Capability) Stdin(input map[string]any) (text string, ok bool) {
	if m.spec.Stdin != "text" {
		return "", false
	}
	text, ok = input[StdinInput].(string)
	return text, ok
}

// Reads reports whether a place is the file that the tool reads as its stdin: the cage shows it nowhere.
func (m *Capability) Reads(p bailey.Place) bool {
	return m.spec.Stdin == "file" && p.Input == StdinInput
}

func (m *Capability) mounted(places []bailey.Place) []bailey.Place {
	return slices.DeleteFunc(slices.Clone(places), m.Reads)
}

// Workspace reports whether the tool runs in the workspace itself, which it reads: a manifest says so, and it is meant where
// one that is not built-in names no path of its own.
func (m *Capability) Workspace() bool {
	b := m.spec.Backend
	return b.Cwd == "workspace" || b.Cwd == "" && !m.Builtin && b.Type == "subprocess" && len(m.PathInputs()) == 0
}

// stdin checks the input that the key of that name is about.
func (r *reader) stdin(n ast.Node, m *manifest, s *schema) {
	if m.Stdin == "" {
		return
	}
	in := s.root.Properties[StdinInput]
	switch {
	case in == nil || !in.only("string"): // a $ref has no type beside it
		r.fault(tokenOf(n), "stdin: %s wants an input stdin of type string, in its own words", m.Stdin)
		return
	case m.Stdin == "text" && in.Format != "":
		r.fault(tokenOf(n), "stdin: text wants an input stdin without a format, and it has %s", in.Format)
	case m.Stdin == "file" && in.Format != "path":
		r.fault(tokenOf(n), "stdin: file wants an input stdin of format path")
	case m.Backend.CwdFromInput == StdinInput:
		r.fault(tokenOf(n), "stdin and cwdFromInput cannot be the same input")
	case m.Backend.Type != "subprocess":
		r.fault(tokenOf(n), "backend %s runs no program that could read stdin", m.Backend.Type)
	}
	in.stream, s.stdin = m.Stdin == "text", m.Stdin
}

// streamed says what is wrong with a text for stdin, or "". It may be empty, have lines, and begin with anything: no tool
// takes it for the name of something else.
func streamed(v string) string {
	if len(v) > MaxStdin {
		return fmt.Sprintf("has %d bytes, more than %d", len(v), MaxStdin)
	}
	if what := strange(v, true); what != "" {
		return "holds " + what
	}
	return ""
}
