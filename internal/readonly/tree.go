package readonly

import (
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
		return newRefusal("Put a command before the redirection.", "a redirection stands without a command")
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
			return newRefusal("Put the ! before the whole pipeline.", "a ! stands inside a pipeline")
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
