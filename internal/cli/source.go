package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/readonly"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// sourceVerb is the group of commands for read-only hosts.
func (a *App) sourceVerb() *cobra.Command {
	return GroupVerb("source", "Look at hosts that agents may only read", "", a.sourceCheckVerb())
}

func (a *App) sourceCheckVerb() *cobra.Command {
	var lines bool
	var own string
	cmd := &cobra.Command{
		Use: "check [COMMAND]", Short: "Decide whether a command line only reads",
		Long: `Decide whether a shell command line, for example "journalctl -u ssh | tail", only reads. An
accepted line is printed as it must be sent to the host: each command has an absolute path, and each word is
quoted. If the line is refused, the reason and the nearest accepted command are printed, and the exit code is
1. Nothing is run, and no host is contacted.

The line is COMMAND, as one argument, or standard input.

--jsonl reads lines of {"cmd":"…"} and answers each with one line
{"allow":…,"text":"…","reason":"…","hint":"…","commands":[…]}. Other members are ignored. If a line is not of
this form, or longer than 64 KiB, the command ends with its number and exit code 2; earlier lines have their
answers.

--own FILE also accepts the commands of FILE, which has the form of source-commands.json. Without COMMAND and
--jsonl, only FILE is checked, and its commands are listed.`,
		Example: "  bailey source check 'ps aux | grep nginx'\n  bailey source check --jsonl < lines.jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, digest, err := openOwn(own)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("own") && len(args) == 0 && !lines {
				return a.listOwn(o, digest)
			}
			if lines {
				if len(args) > 0 {
					return bailey.Invalid.New("source check --jsonl reads standard input", "Leave out the argument.")
				}
				return a.checkLines(os.Stdin, o)
			}
			return a.checkLine(args, o)
		},
	}
	cmd.Flags().BoolVar(&lines, "jsonl", false, `read lines of {"cmd":"…"}`)
	cmd.Flags().StringVar(&own, "own", "", "also accept the commands of this `file`")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// A sourceVerdict is the answer about one line.
type sourceVerdict struct {
	Allow    bool            `json:"allow"`
	Text     string          `json:"text,omitempty"` // to be sent to the host
	Reason   string          `json:"reason,omitempty"`
	Hint     string          `json:"hint,omitempty"`
	Commands []sourceCommand `json:"commands"`
}

// A sourceCommand is one command of an accepted line.
type sourceCommand struct {
	Name    string   `json:"name"`
	Path    string   `json:"path,omitempty"` // empty for a builtin of the shell
	Args    []string `json:"args"`
	Inside  string   `json:"inside,omitempty"` // name of the command that runs this one, for example "xargs"
	Network bool     `json:"network,omitempty"`
	Own     bool     `json:"own,omitempty"` // a command that the operator added
}

func newSourceVerdict(v readonly.Verdict) sourceVerdict {
	s := sourceVerdict{Allow: v.Accepted(), Text: v.Text, Reason: v.Reason, Hint: v.Hint, Commands: []sourceCommand{}}
	for _, c := range v.Commands {
		s.Commands = append(s.Commands,
			sourceCommand{c.Name, c.Path, append([]string{}, c.Args...), c.Inside, c.Network, c.Added})
	}
	return s
}

// An addedCommand is a command that an operator adds.
type addedCommand struct {
	Program string `json:"program"`
	Stops   string `json:"stops"`
}

// An addedList is the answer about a file of commands.
type addedList struct {
	SHA256   string         `json:"sha256"`
	Commands []addedCommand `json:"commands"`
}

// openOwn reads the commands of a file, if one is named.
func openOwn(file string) (o readonly.Options, digest string, err error) {
	if file == "" {
		return o, "", nil
	}
	data, err := safefile.ReadNamed(file, readonly.MaxOwnFile)
	if err != nil {
		return o, "", bailey.Invalid.Wrap(err, "the file of commands cannot be read", "Name a file in the form of source-commands.json.")
	}
	own, err := readonly.ParseOwn(data)
	if err != nil {
		return o, "", bailey.Invalid.Wrapf(err, "Correct the place that the message names; docs/hosts.md describes the file.",
			"the commands in %s are refused", file)
	}
	return readonly.Options{Rules: own.Rules}, own.Digest, nil
}

func (a *App) listOwn(o readonly.Options, digest string) error {
	list := addedList{SHA256: digest, Commands: []addedCommand{}}
	for _, r := range o.Rules {
		list.Commands = append(list.Commands, addedCommand{path.Join(r.Dir, r.Name), r.Stops})
	}
	return PrintAnswer(a, list, func(w io.Writer, list addedList) {
		fmt.Fprintf(w, "sha256 %s\n", list.SHA256)
		PrintTable(w, "PROGRAM\tSTOPS", list.Commands, func(c addedCommand) []any { return []any{c.Program, terminal.Shown(c.Stops)} })
	})
}

func (a *App) checkLine(args []string, o readonly.Options) error {
	line := strings.Join(args, " ")
	if len(args) == 0 {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, readonly.MaxLine+2)) // a line that is too long is refused as such
		if err != nil {
			return bailey.Unavailable.Wrap(err, "cannot read standard input", "")
		}
		line = strings.TrimSuffix(string(text), "\n")
	}
	v := newSourceVerdict(readonly.Check(line, o))
	if !v.Allow {
		return bailey.Denied.New(v.Reason, v.Hint)
	}
	return a.PrintLine(v, "%s\n", v.Text)
}

// maxCheckLine is the most bytes of one line of source check --jsonl.
const maxCheckLine = 64 << 10

func (a *App) checkLines(from io.Reader, o readonly.Options) error {
	return answerLines(from, "cmd", func(line string) error {
		return a.Print(newSourceVerdict(readonly.Check(line, o)))
	})
}

// answerLines calls answer with the member of each line of JSON. It stops at the first line that lacks it.
func answerLines(from io.Reader, member string, answer func(text string) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4096), maxCheckLine)
	n := 0
	for lines.Scan() {
		n++
		var q map[string]any
		err := json.Unmarshal(lines.Bytes(), &q)
		text, ok := q[member].(string)
		if err != nil || !ok {
			return badLine(n, member, cmp.Or(err, fmt.Errorf("the member %q is missing or no text", member)))
		}
		if err := answer(text); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return badLine(n+1, member, err)
	}
	return nil
}

func badLine(n int, member string, err error) error {
	return bailey.Invalid.Wrapf(err, "Correct the line and continue from there.", `line %d is not {"%s":"…"}`, n, member)
}
