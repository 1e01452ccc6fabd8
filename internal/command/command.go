// Package command reads a shell's command line as the simple commands that it would run. It starts nothing, and what it
// cannot tell from the words alone it calls opaque: whoever decides has to ask then.
//
// What is plain is a command whose words stand there as they are: no expansion but ~ and $HOME, no glob, no substitution,
// nothing set for it, nothing before it in the line that could change what it is. Programs that run their operands (env,
// timeout, xargs, sh -c, find -exec, …) are looked through. The grammar is bash's (mvdan.cc/sh/v3/syntax).
package command

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"bailey"
)

// Bounds on a line.
const (
	MaxLine     = 64 << 10 // bytes
	MaxCommands = 32
	maxDepth    = 8 // shells within shells
	maxNest     = 256
)

// Command is one simple command, or a part of the line that is none.
type Command struct {
	Words  []string // the program and its operands; of one that is opaque those that are literal
	Text   string   // as it was written
	Dir    string   // where it runs, of cd where that leads: "" is where the line begins, else absolute, or relative to that
	Opaque string   // why the words do not say what it does; "" where they do
	Files  []File   // that its redirections open
}

// File is one that the shell itself opens.
type File struct {
	Path  string
	Write bool
}

// Parse reads a line. Home is what ~ and $HOME stand for. An error means that nothing is known of the line.
func Parse(line, home string) ([]Command, error) {
	r := &reader{home: home}
	if err := r.line(line, 0); err != nil {
		return nil, err
	}
	if len(r.commands) > MaxCommands {
		return nil, refuse("the line has more than %d commands", MaxCommands)
	}
	return r.commands, nil
}

func refuse(format string, args ...any) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf(format, args...), Hint: "write shorter, plainer lines, one after the other"}
}

// reader walks the tree in the order of execution.
type reader struct {
	home     string
	commands []Command
	src      string // of the shell that is being read
	depth    int

	dir     string
	unsure  string // why the directory is not known any more
	tainted string // why a later word may mean something else
	changed bool   // cd was met
}

func (r *reader) line(src string, depth int) error {
	switch {
	case len(src) > MaxLine:
		return refuse("the line has %d bytes, more than %d", len(src), MaxLine)
	case depth > maxDepth:
		return refuse("shells are nested deeper than %d", maxDepth)
	case strings.ContainsFunc(src, unseen):
		return refuse("the line holds characters that nobody sees")
	case strings.Count(src, "(")+strings.Count(src, "{")+strings.Count(src, "`") > maxNest:
		return refuse("the line has more than %d brackets", maxNest)
	}
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil {
		return refuse("the line cannot be read as a shell would: %v", err)
	}
	outer, was := r.src, r.depth
	r.src, r.depth = src, depth
	defer func() { r.src, r.depth = outer, was }()
	return r.list(f.Stmts)
}

// unseen are control characters but tab and newline, and what changes how text looks.
func unseen(c rune) bool {
	return c != '\t' && c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) || c == unicode.ReplacementChar
}

func (r *reader) list(stmts []*syntax.Stmt) error {
	for _, s := range stmts {
		before := r.changed
		r.changed = false
		if err := r.stmt(s); err != nil {
			return err
		}
		if r.changed { // cd may not have worked, and what follows runs anyway
			r.unsure = "where it runs is not known: write cd DIR && COMMAND"
		}
		r.changed = r.changed || before
	}
	return nil
}

func (r *reader) stmt(s *syntax.Stmt) error {
	if len(r.commands) > MaxCommands {
		return nil // Parse refuses it
	}
	from := len(r.commands)
	if err := r.node(s); err != nil {
		return err
	}
	if s.Negated && r.changed { // what follows && runs where cd did not work
		r.unsure = "where it runs is not known: write cd DIR && COMMAND"
	}
	if s.Background || s.Coprocess {
		for i := from; i < len(r.commands); i++ {
			r.commands[i].blur("it goes on in the background")
		}
	}
	return nil
}

func (r *reader) node(s *syntax.Stmt) error {
	switch n := s.Cmd.(type) {
	case *syntax.CallExpr:
		return r.call(n, s)
	case *syntax.BinaryCmd:
		if len(s.Redirs) == 0 {
			return r.binary(n)
		}
	case *syntax.Subshell:
		if len(s.Redirs) == 0 {
			dir, unsure, changed := r.dir, r.unsure, r.changed
			err := r.list(n.Stmts)
			r.dir, r.unsure, r.changed = dir, unsure, changed
			return err
		}
	case *syntax.Block:
		if len(s.Redirs) == 0 {
			return r.list(n.Stmts)
		}
	case *syntax.TimeClause:
		if n.Stmt != nil && len(s.Redirs) == 0 {
			return r.stmt(n.Stmt)
		}
	case nil:
		return r.call(&syntax.CallExpr{}, s)
	}
	r.add(Command{Text: r.text(s), Opaque: "it is more than simple commands"})
	r.tainted = "what stands before it may have changed what it is"
	return nil
}

func (r *reader) binary(n *syntax.BinaryCmd) error {
	dir, unsure, before := r.dir, r.unsure, r.changed
	r.changed = false
	if err := r.stmt(n.X); err != nil {
		return err
	}
	switch n.Op {
	case syntax.OrStmt:
		if r.changed {
			r.unsure = "where it runs is not known: write cd DIR && COMMAND"
		}
	case syntax.Pipe, syntax.PipeAll: // each side is a shell of its own
		r.dir, r.unsure, r.changed = dir, unsure, false
	}
	err := r.stmt(n.Y)
	switch n.Op {
	case syntax.OrStmt:
		if r.changed {
			r.unsure = "where it runs is not known: write cd DIR && COMMAND"
		}
	case syntax.Pipe, syntax.PipeAll:
		r.dir, r.unsure, r.changed = dir, unsure, false
	}
	r.changed = r.changed || before
	return err
}

// add ends a command: what is known of where it runs, and of what came before it.
func (r *reader) add(c Command) {
	c.Dir = r.dir
	c.blur(r.unsure)
	c.blur(r.tainted)
	r.commands = append(r.commands, c)
}

// blur makes a command opaque; the first reason stays.
func (c *Command) blur(why string) {
	if c.Opaque == "" {
		c.Opaque = why
	}
}

func (r *reader) text(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(r.src) || from > to {
		return r.src
	}
	return r.src[from:to]
}

// call reads a simple command.
func (r *reader) call(n *syntax.CallExpr, s *syntax.Stmt) error {
	c := Command{Text: r.text(s)}
	for _, w := range n.Args {
		if v, ok := r.word(w); ok {
			c.Words = append(c.Words, v)
		} else {
			c.blur("a word of it is not literal")
		}
	}
	for _, redirect := range s.Redirs {
		r.redirect(&c, redirect)
	}
	if len(n.Assigns) > 0 {
		c.blur("it sets variables")
		if len(n.Args) == 0 {
			r.tainted = "what stands before it may have changed what it is"
		}
	}
	if len(c.Words) == 0 {
		if c.Opaque != "" || len(c.Files) > 0 {
			r.add(c)
		}
		return nil
	}
	return r.program(c)
}

// cd moves on, where it is plain.
func (r *reader) cd(c Command) {
	r.changed = true
	to := c.Words[1:]
	if len(to) == 2 && to[0] == "--" {
		to = to[1:]
	}
	switch {
	case c.Opaque != "" || len(to) > 1 || len(to) == 1 && (to[0] == "" || to[0][0] == '-') || len(to) == 0 && r.home == "":
		r.unsure = "where it runs is not known"
	case len(to) == 0:
		r.dir = r.home
	case path.IsAbs(to[0]):
		r.dir = path.Clean(to[0])
	default:
		r.dir = path.Join(r.dir, to[0])
	}
}
