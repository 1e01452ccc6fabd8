package readonly

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// input is the source of the standard input of a command.
type input int

const (
	inputInherited input = iota // from the caller of the line
	inputPiped                  // output of another command
	inputFile                   // a file
	inputEmpty                  // /dev/null, or an echo without operands
)

// checkStatements checks and renders statements that run one after the other.
func (k *checker) checkStatements(stmts []*syntax.Stmt, in input) *refusal {
	for i, s := range stmts {
		if i > 0 {
			k.out.WriteString("; ")
		}
		if r := k.checkStatement(s, in); r != nil {
			return r
		}
	}
	return nil
}

// checkStatement checks and renders one statement with its redirections.
func (k *checker) checkStatement(s *syntax.Stmt, in input) *refusal {
	if s.Background || s.Coprocess || s.Disown {
		return newRefusal("Remove the &, or use && or ; to join commands.", "the line starts a background job with &")
	}
	if s.Negated {
		k.out.WriteString("! ")
	}
	redirections, in, r := k.checkRedirections(s.Redirs, in)
	if r != nil {
		return r
	}
	if r := k.checkNode(s, in); r != nil {
		return r
	}
	k.out.WriteString(redirections)
	return nil
}

// checkNode checks and renders the command of a statement. Types that are not named here are refused.
func (k *checker) checkNode(s *syntax.Stmt, in input) *refusal {
	switch n := s.Cmd.(type) {
	case *syntax.CallExpr:
		return k.checkSimpleCommand(n, in)
	case *syntax.BinaryCmd:
		if len(s.Redirs) > 0 {
			return newRefusal("Put the redirection after a command.", "a redirection applies to more than one command")
		}
		return k.checkBinary(n, in)
	case *syntax.Subshell:
		return k.checkGroup("(", n.Stmts, ")", in)
	case *syntax.Block:
		return k.checkGroup("{ ", n.Stmts, "; }", in)
	case nil:
		return newRefusal("Put a command before the redirection.", "a redirection has no command")
	}
	return unknownNode(s.Cmd)
}

func (k *checker) checkGroup(left string, stmts []*syntax.Stmt, right string, in input) *refusal {
	k.out.WriteString(left)
	if r := k.checkStatements(stmts, in); r != nil {
		return r
	}
	k.out.WriteString(right)
	return nil
}

func (k *checker) checkBinary(n *syntax.BinaryCmd, in input) *refusal {
	if r := k.checkStatement(n.X, in); r != nil {
		return r
	}
	next := in
	switch n.Op {
	case syntax.AndStmt:
		k.out.WriteString(" && ")
	case syntax.OrStmt:
		k.out.WriteString(" || ")
	case syntax.Pipe:
		if n.Y.Negated {
			return newRefusal("Put the ! before the whole pipeline.", "a ! is inside a pipeline")
		}
		k.out.WriteString(" | ")
		if next = inputPiped; emptyEcho(n.X) {
			next = inputEmpty
		}
	default:
		return newRefusal("Write 2>&1 | instead of |&.", "the operator %s is not accepted", n.Op)
	}
	return k.checkStatement(n.Y, next)
}

// emptyEcho reports whether a statement is an echo without operands, which is the usual way to give openssl s_client an
// empty input.
func emptyEcho(s *syntax.Stmt) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) != 1 || len(call.Assigns) > 0 {
		return false
	}
	name := call.Args[0].Lit()
	return name == "echo" || name == "/bin/echo" || name == "/usr/bin/echo"
}

// unknownNode refuses a node of a type that node does not name.
func unknownNode(c syntax.Command) *refusal {
	switch c.(type) {
	case *syntax.ForClause, *syntax.WhileClause:
		return newRefusal("Use find -exec, xargs, or several operands: head -n 5 /etc/hosts /etc/fstab",
			"the line contains a loop")
	case *syntax.IfClause, *syntax.CaseClause:
		return newRefusal("Use && and ||: test -f /etc/hosts && cat /etc/hosts", "the line contains if or case")
	case *syntax.FuncDecl:
		return newRefusal("Write the commands themselves.", "the line defines a function")
	case *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		return newRefusal("Use test, for example: test -n x",
			"the line contains [[ ]], (( )) or let, which evaluate their operands")
	case *syntax.DeclClause:
		return newRefusal("Put LC_ALL=C or TZ=UTC directly before the command.",
			"the line changes variables of the shell")
	case *syntax.TimeClause:
		return newRefusal("Run the command without time.", "the line contains time, which is a program in some shells")
	}
	return newRefusal("Use simple commands joined with |, &&, || or ;",
		"the line contains syntax other than simple commands")
}

// settableVariables lists the variables that may be set before a command, with the characters of their values besides
// letters and digits. No value contains a leading slash, since the C library loads locale and time zone data from a
// path. Any other variable can change the program that runs (for example LD_PRELOAD, PATH, PAGER, PYTHONPATH, AWKPATH)
// or the parsing of options (POSIXLY_CORRECT).
var settableVariables = map[string]string{
	"LC_ALL": "_.@-", "LANG": "_.@-", "LANGUAGE": "_.@-:", "LC_CTYPE": "_.@-", "LC_COLLATE": "_.@-",
	"LC_MESSAGES": "_.@-",
	"LC_NUMERIC":  "_.@-", "LC_TIME": "_.@-", "LC_MONETARY": "_.@-",
	"TZ": "_/+-,.", "COLUMNS": "", "LINES": "", "TERM": "-", "NO_COLOR": "", "SYSTEMD_COLORS": "", "SYSTEMD_URLIFY": "",
	"TIME_STYLE": "-", "BLOCK_SIZE": "-", "BLOCKSIZE": "", "QUOTING_STYLE": "-", "DEBIAN_FRONTEND": "",
}

// exactValues lists variables of which only the given values are accepted. A pager named cat, or none, starts no
// program of an agent.
var exactValues = map[string][]string{
	"PAGER": {"", "cat"}, "SYSTEMD_PAGER": {"", "cat"}, "DPKG_PAGER": {"", "cat"},
}

const assignHint = "Accepted before a command are locale, TZ, COLUMNS, TERM and color variables, for example " +
	"LC_ALL=C or TZ=UTC."

// checkAssignments checks and renders the assignments before a command.
func (k *checker) checkAssignments(list []*syntax.Assign) *refusal {
	for _, a := range list {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil {
			return newRefusal(assignHint, "the line contains an assignment other than NAME=VALUE")
		}
		w := word{}
		if a.Value != nil {
			words, r := expandWord(a.Value)
			if r != nil {
				return r
			}
			if len(words) != 1 || words[0].bare != nil || words[0].tilde {
				return newRefusal(assignHint, "the value of %s is not one literal word", a.Name.Value)
			}
			w = words[0]
		}
		if !isSettable(a.Name.Value, w.value) {
			return newRefusal(assignHint, "setting %s to %q can change the meaning of the command", a.Name.Value,
				w.value)
		}
		k.out.WriteString(a.Name.Value)
		k.out.WriteByte('=')
		if w.value != "" {
			k.out.WriteString(w.renderSource())
		}
		k.out.WriteByte(' ')
	}
	return nil
}

func isSettable(name, value string) bool {
	for _, v := range exactValues[name] {
		if v == value {
			return true
		}
	}
	extra, ok := settableVariables[name]
	if !ok || len(value) > 64 || strings.HasPrefix(value, "/") || strings.Contains(value, "..") {
		return false
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}

const redirectHint = "Accepted are >/dev/null, 2>/dev/null, &>/dev/null, 2>&1, 1>&2, </dev/null and < FILE. " +
	"The output of the command is returned without a file."

// checkRedirections checks the redirections of one statement and returns them as text. It also returns the input that
// they leave for the command.
func (k *checker) checkRedirections(list []*syntax.Redirect, in input) (string, input, *refusal) {
	if len(list) == 0 {
		return "", in, nil
	}
	var out strings.Builder
	for _, n := range list {
		text, next, r := k.checkRedirection(n, in)
		if r != nil {
			return "", in, r
		}
		in = next
		out.WriteByte(' ')
		out.WriteString(text)
	}
	return out.String(), in, nil
}

func (k *checker) checkRedirection(n *syntax.Redirect, in input) (string, input, *refusal) {
	fd := ""
	if n.N != nil {
		fd = n.N.Value
	}
	switch n.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return "", in, newRefusal("Pipe the text: echo TEXT | COMMAND",
			"the line contains a here-document or here-string")
	}
	words, r := expandWord(n.Word)
	if r != nil {
		return "", in, r
	}
	if len(words) != 1 || words[0].bare != nil {
		return "", in, newRefusal(redirectHint, "the target of a redirection is not one literal name")
	}
	w := words[0]
	switch {
	case n.Op == syntax.RdrIn && (fd == "" || fd == "0"):
		return inputFrom(w)
	case w.tilde:
	case (n.Op == syntax.RdrOut || n.Op == syntax.AppOut) && w.value == "/dev/null":
		switch fd {
		case "", "1":
			return ">/dev/null", in, nil
		case "2":
			return "2>/dev/null", in, nil
		}
	case (n.Op == syntax.RdrAll || n.Op == syntax.AppAll) && w.value == "/dev/null" && fd == "":
		return ">/dev/null 2>&1", in, nil // dash reads &> as a background job
	case n.Op == syntax.DplOut && fd == "2" && w.value == "1":
		return "2>&1", in, nil
	case n.Op == syntax.DplOut && (fd == "" || fd == "1") && w.value == "2":
		return ">&2", in, nil
	}
	return "", in, newRefusal(redirectHint, "the redirection %s%s %s is not accepted", fd, n.Op, w.value)
}

// inputFrom checks a file that the shell opens for reading. bash connects to the network for /dev/tcp and /dev/udp.
func inputFrom(w word) (string, input, *refusal) {
	if w.value == "/dev/null" {
		return "</dev/null", inputEmpty, nil
	}
	if r := checkRead(w.value); r != nil {
		return "", inputFile, r
	}
	return "<" + w.renderSource(), inputFile, nil
}
