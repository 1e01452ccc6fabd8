// Package program has what the programs with few commands (bailey-broker, bailey-host, bailey-server) do alike with
// their arguments. The program bailey has package cli instead.
package program

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"bailey"
)

// A Program is the name of a program, and the text that its --help prints.
type Program struct{ Name, Usage string }

// UsageFault is the error of wrong arguments.
func (p Program) UsageFault(message string) error {
	return bailey.Invalid.New(message, p.Name+" --help")
}

// ParseFlags reads the arguments of a command, for which declare names the flags, and returns what is not a flag. If
// they ask for help, it prints the usage, and the error is flag.ErrHelp.
func (p Program) ParseFlags(verb string, args []string, help io.Writer, declare func(*flag.FlagSet)) ([]string, error) {
	f := flag.NewFlagSet(verb, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	declare(f)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, p.Usage)
		return nil, err
	}
	if err != nil {
		return nil, p.UsageFault(err.Error())
	}
	return f.Args(), nil
}

// RefuseArguments returns an error if a command without arguments has any.
func (p Program) RefuseArguments(verb string, rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	return p.UsageFault(fmt.Sprintf("%s takes no argument %.40q", verb, rest[0]))
}

// StateDir returns the absolute path of the directory of a program's files: named, or the value of a variable, or a
// directory with the program's name in the user's state directory (XDG_STATE_HOME, ~/.local/state).
func (p Program) StateDir(named, variable string, getenv func(string) string) (string, error) {
	if named == "" {
		named = getenv(variable)
	}
	if named == "" {
		state := getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", p.UsageFault("--dir is missing, and there is no home directory")
			}
			state = filepath.Join(home, ".local", "state")
		}
		named = filepath.Join(state, p.Name)
	}
	return filepath.Abs(named)
}
