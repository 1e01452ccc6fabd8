package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
)

// errWriter remembers write errors, because a command whose output was lost must not report success.
type errWriter struct {
	w   io.Writer
	err error
}

func (s *errWriter) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// Groups makes a command that only has subcommands reject unknown ones. Otherwise a misspelled subcommand, for example
// in a script, would print the help and succeed.
func Groups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		Groups(c)
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

// plainFlag removes the name of the Go parser from the error for an invalid flag value.
func plainFlag(why string) string {
	what, _, found := strings.Cut(why, ": strconv.")
	if !found {
		return why
	}
	return what + ": it is not of the kind that the flag takes"
}

// Worded adds a kind and a hint to cobra's own errors about arguments and flags.
func Worded(err error) error {
	if err == nil || bailey.KindOf(err) != bailey.Internal || !isUsage(err) {
		return err
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: err.Error(), Hint: "bailey help lists verbs and flags"}
}
