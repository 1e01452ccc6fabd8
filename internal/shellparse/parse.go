// Package shellparse parses a shell command line into the simple commands that it would run. It executes nothing. If the
// words alone do not show the effect of a command, the command is marked opaque, and the caller must ask a person.
//
// A command is plain if all its words are literal: the only expansions are ~ and $HOME, it contains no glob and no
// substitution, it sets no variable, and no earlier part of the line could change its meaning. Programs that run their
// operands (for example env, timeout, xargs, sh -c, find -exec) are looked through. The grammar is that of bash
// (mvdan.cc/sh/v3/syntax).
package shellparse

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"bailey"
)

// Limits of a line.
const (
	MaxLine     = 64 << 10 // bytes
	MaxCommands = 32
	maxDepth    = 8 // nesting of shells
	maxNest     = 256
)

// Command is one simple command, or a part of the line that is more than that and therefore opaque.
type Command struct {
	Words  []string // the program and its operands; if opaque, only the literal ones
	Text   string   // source text
	Dir    string   // working directory, for cd its destination: absolute, or relative to that of the line, which is ""
	Opaque string   // why the words do not show its effect; "" if they do
	Files  []File   // files that its redirections open
	Via    []string // names of the programs, such as timeout, that start it and are not in Words, in their order
}

// File is a file that the shell itself opens.
type File struct {
	Path  string
	Write bool
}

// Parse parses a line. It replaces ~ and $HOME with home. If it returns an error, nothing is known about the line, and
// the caller must treat all of it as opaque.
func Parse(line, home string) ([]Command, error) { return ParseAs(line, home, false) }

// ParseAs is Parse for a user who is root: sudo without options then changes nothing that a command line shows.
func ParseAs(line, home string, root bool) ([]Command, error) {
	r := &lineWalker{home: home, root: root}
	if err := r.parseLine(line, 0); err != nil {
		return nil, err
	}
	if len(r.commands) > MaxCommands {
		return nil, lineError("the line has more than %d commands", MaxCommands)
	}
	return r.commands, nil
}

func lineError(format string, args ...any) error {
	return bailey.Invalid.New(fmt.Sprintf(format, args...), "write shorter, simpler lines, one after the other")
}

// lineWalker walks the syntax tree in execution order.
type lineWalker struct {
	home     string
	root     bool
	commands []Command
	src      string // source text of the current shell
	depth    int

	dir     string
	unsure  string // why the directory is unknown, or ""
	tainted string // why later words may have another meaning, or ""
	changed bool   // a cd occurred

	via []string // programs that start the shell of the current script
}

func (r *lineWalker) parseLine(src string, depth int) error {
	switch {
	case len(src) > MaxLine:
		return lineError("the line has %d bytes, more than %d", len(src), MaxLine)
	case depth > maxDepth:
		return lineError("shells are nested deeper than %d", maxDepth)
	case strings.ContainsFunc(src, isInvisible):
		return lineError("the line contains invisible characters")
	case strings.Count(src, "(")+strings.Count(src, "{")+strings.Count(src, "`") > maxNest:
		return lineError("the line has more than %d brackets", maxNest)
	}
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src), "")
	if err != nil {
		return lineError("cannot parse the line as a shell would: %v", err)
	}
	outer, was := r.src, r.depth
	r.src, r.depth = src, depth
	defer func() { r.src, r.depth = outer, was }()
	return r.walkStatements(f.Stmts)
}

// isInvisible reports whether c is a control character other than tab and newline, or a character that changes how text is
// displayed.
func isInvisible(c rune) bool {
	return c != '\t' && c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) || c == unicode.ReplacementChar
}

func (r *lineWalker) walkStatements(stmts []*syntax.Stmt) error {
	for _, s := range stmts {
		before := r.changed
		r.changed = false
		if err := r.walkStatement(s); err != nil {
			return err
		}
		if r.changed { // If the cd fails, the next command still runs.
			r.unsure = "its working directory is unknown: write cd DIR && COMMAND"
		}
		r.changed = r.changed || before
	}
	return nil
}

func (r *lineWalker) walkStatement(s *syntax.Stmt) error {
	if len(r.commands) > MaxCommands {
		return nil // Parse refuses the line
	}
	from := len(r.commands)
	if err := r.walkNode(s); err != nil {
		return err
	}
	if s.Negated && r.changed { // After a negated cd, && continues if the cd failed.
		r.unsure = "its working directory is unknown: write cd DIR && COMMAND"
	}
	if s.Background || s.Coprocess {
		for i := from; i < len(r.commands); i++ {
			r.commands[i].markOpaque("it continues in the background")
		}
	}
	return nil
}

func (r *lineWalker) walkNode(s *syntax.Stmt) error {
	switch n := s.Cmd.(type) {
	case *syntax.CallExpr:
		return r.walkCall(n, s)
	case *syntax.BinaryCmd:
		if len(s.Redirs) == 0 {
			return r.walkBinary(n)
		}
	case *syntax.Subshell:
		if len(s.Redirs) == 0 {
			dir, unsure, changed := r.dir, r.unsure, r.changed
			err := r.walkStatements(n.Stmts)
			r.dir, r.unsure, r.changed = dir, unsure, changed
			return err
		}
	case *syntax.Block:
		if len(s.Redirs) == 0 {
			return r.walkStatements(n.Stmts)
		}
	case *syntax.TimeClause:
		if n.Stmt != nil && len(s.Redirs) == 0 {
			return r.walkStatement(n.Stmt)
		}
	case nil:
		return r.walkCall(&syntax.CallExpr{}, s)
	}
	r.addCommand(Command{Text: r.sourceText(s), Opaque: "it is more than simple commands"})
	r.tainted = "earlier commands may have changed it"
	return nil
}

func (r *lineWalker) walkBinary(n *syntax.BinaryCmd) error {
	dir, unsure, before := r.dir, r.unsure, r.changed
	r.changed = false
	if err := r.walkStatement(n.X); err != nil {
		return err
	}
	switch n.Op {
	case syntax.OrStmt:
		if r.changed {
			r.unsure = "its working directory is unknown: write cd DIR && COMMAND"
		}
	case syntax.Pipe, syntax.PipeAll: // each side runs in its own subshell
		r.dir, r.unsure, r.changed = dir, unsure, false
	}
	err := r.walkStatement(n.Y)
	switch n.Op {
	case syntax.OrStmt:
		if r.changed {
			r.unsure = "its working directory is unknown: write cd DIR && COMMAND"
		}
	case syntax.Pipe, syntax.PipeAll:
		r.dir, r.unsure, r.changed = dir, unsure, false
	}
	r.changed = r.changed || before
	return err
}

// addCommand appends a command. The command is opaque if earlier parts of the line make its directory or its meaning
// uncertain.
func (r *lineWalker) addCommand(c Command) {
	c.Dir = r.dir
	c.markOpaque(r.unsure)
	c.markOpaque(r.tainted)
	r.commands = append(r.commands, c)
}

// markOpaque makes a command opaque. If it already is, the first reason stays.
func (c *Command) markOpaque(why string) {
	if c.Opaque == "" {
		c.Opaque = why
	}
}

func (r *lineWalker) sourceText(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(r.src) || from > to {
		return r.src
	}
	return r.src[from:to]
}

// walkCall parses a simple command.
func (r *lineWalker) walkCall(n *syntax.CallExpr, s *syntax.Stmt) error {
	c := Command{Text: r.sourceText(s), Via: slices.Clone(r.via)}
	for _, w := range n.Args {
		if v, ok := r.literalWord(w); ok {
			c.Words = append(c.Words, v)
		} else {
			c.markOpaque("a word of it is not literal")
		}
	}
	for _, redirect := range s.Redirs {
		r.addRedirect(&c, redirect)
	}
	if len(n.Assigns) > 0 && !r.setsNoEditor(n.Assigns, c) {
		c.markOpaque("it sets variables")
		if len(n.Args) == 0 {
			r.tainted = "earlier commands may have changed it"
		}
	}
	if len(c.Words) == 0 {
		if c.Opaque != "" || len(c.Files) > 0 {
			r.addCommand(c)
		}
		return nil
	}
	return r.unwrapProgram(c)
}

// setsNoEditor reports whether a command line of git sets only variables that keep git from asking or showing something, as
// GIT_EDITOR=true and GIT_PAGER=cat do. A call does neither anyway.
func (r *lineWalker) setsNoEditor(assigns []*syntax.Assign, c Command) bool {
	if len(c.Words) == 0 || c.Words[0] != "git" {
		return false
	}
	for _, a := range assigns {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil || a.Value == nil {
			return false
		}
		v, ok := r.literalWord(a.Value)
		if !ok || !slices.Contains([]string{"GIT_EDITOR=true", "GIT_EDITOR=:", "GIT_PAGER=cat", "PAGER=cat", "GIT_TERMINAL_PROMPT=0",
			"GIT_SEQUENCE_EDITOR=true", "GIT_SEQUENCE_EDITOR=:", "GIT_OPTIONAL_LOCKS=0"}, a.Name.Value+"="+v) {
			return false
		}
	}
	return true
}

// changeDir updates the directory if the destination is plain, and otherwise marks the directory as unknown.
func (r *lineWalker) changeDir(c Command) {
	r.changed = true
	to := c.Words[1:]
	if len(to) == 2 && to[0] == "--" {
		to = to[1:]
	}
	switch {
	case c.Opaque != "" || len(to) > 1 || len(to) == 1 && (to[0] == "" || to[0][0] == '-') || len(to) == 0 &&
		r.home == "":
		r.unsure = "its working directory is unknown"
	case len(to) == 0:
		r.dir = r.home
	case path.IsAbs(to[0]):
		r.dir = path.Clean(to[0])
	default:
		r.dir = path.Join(r.dir, to[0])
	}
}
