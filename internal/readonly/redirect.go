package readonly

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const redirectHint = "Accepted are >/dev/null, 2>/dev/null, &>/dev/null, 2>&1, 1>&2, </dev/null and < FILE. " +
	"The output of the command is returned without a file."

// checkRedirections checks the redirections of one statement and returns them as text. It also returns the input that they
// leave for the command.
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
