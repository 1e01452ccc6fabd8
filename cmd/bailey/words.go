package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"bailey/internal/terminal"

	"github.com/spf13/cobra"

	"bailey"
)

// cell is a text in a table: shown, and cut so that one row cannot push the others aside.
func cell(s string) string {
	const most = 64
	s = terminal.Shown(s)
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// sink remembers that something could not be written: lost output is no success.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// groups makes a verb that only has verbs below it refuse what it does not know: help and success in
// answer to a misspelled word would let a script go on.
func groups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		groups(c)
	}
	if !cmd.HasSubCommands() || cmd.RunE != nil {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.HasParent() {
			return cmd.Help()
		}
		return unknownVerb(cmd, args)
	}
}

func unknownVerb(cmd *cobra.Command, args []string) error {
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	slices.Sort(verbs)
	hint := cmd.CommandPath() + " has " + strings.Join(verbs, ", ")
	if len(args) == 0 {
		return &bailey.Error{Kind: bailey.Invalid, Message: cmd.CommandPath() + " wants a verb", Hint: hint}
	}
	if !cmd.HasParent() && strings.Contains(args[0], ".") {
		hint = "a capability is called with: bailey run " + args[0]
	}
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		hint = "did you mean " + strings.Join(close, ", ") + "?"
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s has no verb %q", cmd.CommandPath(), args[0]), Hint: hint}
}

// plainFlag says of a flag's value that it does not fit without the name of what could not read it.
func plainFlag(why string) string {
	what, _, found := strings.Cut(why, ": strconv.")
	if !found {
		return why
	}
	return what + ": it is not of the kind that the flag takes"
}

// worded gives cobra's own complaints about words and flags a kind and a cure.
func worded(err error) error {
	if err == nil || bailey.KindOf(err) != bailey.Internal || !isUsage(err) {
		return err
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: err.Error(), Hint: "bailey help lists verbs and flags"}
}
