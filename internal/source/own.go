package source

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/readonly"
	"bailey/internal/safefile"
)

// OwnFile is the file in the home with the commands that an operator adds to those that only read.
const OwnFile = "source-commands.json"

// OwnCommands are the commands of a file.
type OwnCommands struct {
	readonly.Own
	text []byte
}

// listNames returns the names of the commands.
func (o OwnCommands) listNames() string {
	names := make([]string, len(o.Rules))
	for i, r := range o.Rules {
		names[i] = path.Join(r.Dir, r.Name)
	}
	return strings.Join(names, ", ")
}

// ReadOwn reads a file of commands. If it does not exist, the result is the zero value.
func ReadOwn(file string) (OwnCommands, error) {
	data, err := safefile.ReadPlain(file, readonly.MaxOwnFile)
	if err != nil || data == nil {
		return OwnCommands{}, err
	}
	if info, err := os.Lstat(file); err == nil && safefile.Writable(info) {
		return OwnCommands{}, bailey.Denied.Errorf("run: chmod go-w "+file,
			"other users can write %s, which decides which commands only read", file)
	}
	own, err := readonly.ParseOwn(data)
	if err != nil {
		return OwnCommands{}, bailey.Invalid.Wrapf(err, "correct the place that the message names; docs/hosts.md describes the file",
			"the commands in %s are refused", file)
	}
	return OwnCommands{own, data}, nil
}

// OwnCommands returns the commands of the operator.
func (r *Registry) OwnCommands() (OwnCommands, error) { return ReadOwn(filepath.Join(r.Dir, OwnFile)) }
