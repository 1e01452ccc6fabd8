package direct

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// addSandboxVerbs adds the commands with which a person works in a sandbox. They are no calls: no agent can use them,
// and
// the ledger has an event before each.
func (a *commands) addSandboxVerbs(group *cobra.Command) {
	group.AddCommand(a.sandboxShellVerb(), a.sandboxCopyVerb(), a.sandboxSSHVerb())
}

// personBox is a sandbox of this person, whichever agent made it.
type personBox struct {
	hostapi.Sandbox
	host  *hostapi.Client
	owner hostapi.Owner
	op    localapi.Operator
	gate  *localapi.Client
}

// openSandbox finds a sandbox for an operator.
func (a *commands) openSandbox(ctx context.Context, verb, name string) (b personBox, err error) {
	if b.op, b.gate, err = a.OperatorClient(verb); err != nil {
		return b, err
	}
	if b.host, b.owner, err = cli.SandboxHost(b.gate.Home); err != nil {
		return b, err
	}
	b.Sandbox, err = hostapi.Show.Ask(ctx, b.host, b.owner, hostapi.Target{Sandbox: name})
	return b, err
}

// recordEntry writes the event of the ledger.
func (b personBox) recordEntry(ctx context.Context, e apitype.SandboxEntering) error {
	e.Sandbox, e.Image, e.ImageDigest, e.Accelerator, e.Agent = b.ID, b.Image, b.ImageDigest, b.Accelerator, b.Owner.Agent
	_, err := apitype.EnterSandbox.Do(ctx, b.gate, b.op, e)
	return err
}

func (a *commands) sandboxShellVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "shell SANDBOX [-- COMMAND...]", Short: "Work in a sandbox at your terminal",
		Long: `Work in a sandbox at your terminal, as root. It runs /bin/sh, or COMMAND. The sandbox may belong to any of your agents. The
ledger has the event sandbox.enter; what you type is not recorded.`,
		Example: "  bailey sandbox shell web", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := a.openSandbox(cmd.Context(), "sandbox shell", args[0])
			if err != nil {
				return err
			}
			argv := args[1:]
			if len(argv) == 0 {
				argv = []string{"/bin/sh", "-l"}
			}
			if err := b.recordEntry(cmd.Context(), apitype.SandboxEntering{Action: "shell", Argv: argv}); err != nil {
				return err
			}
			exit, err := a.runShell(cmd.Context(), b, argv)
			if err != nil {
				return err
			}
			if a.JSON {
				return errors.Join(a.Print(exit), exitOf(exit))
			}
			return exitOf(exit)
		},
	})
}

// exitOf returns the exit code of a command as the error of this program.
func exitOf(e hostapi.Exit) error {
	if e.Signal > 0 {
		e.Code = 128 + e.Signal
	}
	if e.Code == 0 {
		return nil
	}
	return cli.Exit(e.Code)
}

// shellEnv returns the environment of a shell: the terminal as it is here.
func shellEnv() []string {
	return []string{"TERM=" + cmp.Or(os.Getenv("TERM"), "dumb"), "HOME=/root", "USER=root", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// runShell runs a command on the terminal of the person, or on the streams if they are no terminal.
func (a *commands) runShell(ctx context.Context, b personBox, argv []string) (hostapi.Exit, error) {
	command := hostapi.Command{Sandbox: b.ID, Argv: argv, Env: shellEnv(), Dir: "/"}
	s := hostapi.Streams{Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr}
	if a.JSON {
		s.Stdout = a.Stderr // standard output is for the answer
	}
	if !terminal.Is(os.Stdin) || !terminal.Is(os.Stdout) {
		return b.host.Exec(ctx, b.owner, command, s)
	}
	raw, err := openRaw(os.Stdin)
	if err != nil {
		return hostapi.Exit{}, bailey.Unavailable.Wrap(err, "cannot use the terminal",
			"redirect its input: bailey sandbox shell "+b.Name+" < FILE")
	}
	defer raw.restore()
	command.Terminal, s.Sizes = &raw.size, raw.sizes
	return b.host.Exec(ctx, b.owner, command, s)
}

// rawTerminal is the terminal of the person, which passes every key on.
type rawTerminal struct {
	size    hostapi.Size
	sizes   chan hostapi.Size // the last change
	restore func()
}

func (a *commands) sandboxCopyVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "cp FROM TO", Short: "Copy a file to a sandbox or from it",
		Long: `Copy a file of at most 10 MB to a sandbox or from it, byte by byte. One of FROM and TO is SANDBOX:PATH, the other a file
here. The ledger has the event sandbox.enter with the path and, for a copy to the sandbox, the digest.

Agents use sandbox.read_file and sandbox.write_file, whose texts are redacted.`,
		Example: "  bailey sandbox cp app.tar web:/root/app.tar\n  bailey sandbox cp web:/etc/hosts hosts", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromPath, isFrom := splitBoxPath(args[0])
			to, toPath, isTo := splitBoxPath(args[1])
			if isFrom == isTo {
				return bailey.Invalid.New("one of the two is a file in a sandbox, and the other a file here",
					"for example: bailey sandbox cp app.tar web:/root/app.tar")
			}
			b, err := a.openSandbox(cmd.Context(), "sandbox cp", from+to)
			if err != nil {
				return err
			}
			if isTo {
				return a.copyTo(cmd.Context(), b, args[0], toPath)
			}
			return a.copyFrom(cmd.Context(), b, fromPath, args[1])
		},
	})
}

// splitBoxPath splits SANDBOX:PATH. A word with a slash before the colon is a file here.
func splitBoxPath(word string) (box, file string, ok bool) {
	box, file, ok = strings.Cut(word, ":")
	if !ok || box == "" || !path.IsAbs(file) || strings.ContainsAny(box, `/\`) {
		return "", "", false
	}
	return box, file, true
}

// maxCopy limits a file that is copied, in bytes.
const maxCopy = 10 << 20

func (a *commands) copyTo(ctx context.Context, b personBox, file, to string) error {
	f, err := os.Open(file)
	if err != nil {
		return bailey.NotFound.Wrap(err, "cannot read the file", "name a file that exists")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCopy+1))
	switch {
	case err != nil:
		return bailey.Invalid.Wrap(err, "cannot read the file", "name a regular file")
	case len(data) > maxCopy:
		return bailey.Invalid.Errorf("copy it in parts (split -b 10M), and join them there",
			"%s has more than %d bytes", terminal.Shown(file), maxCopy)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if strings.HasSuffix(to, "/") {
		to += filepath.Base(file)
	}
	sum := sha256.Sum256(data)
	if err := b.recordEntry(ctx, apitype.SandboxEntering{Action: "copy to", Path: to, Bytes: len(data),
		SHA256: hex.EncodeToString(sum[:])}); err != nil {
		return err
	}
	q := hostapi.WriteRequest{Sandbox: b.ID, Path: to, Data: data, Mode: uint32(info.Mode().Perm()), Parents: true}
	written, err := hostapi.WriteFile.Ask(ctx, b.host, b.owner, q)
	if err != nil {
		return err
	}
	return a.PrintLine(written, "copied %d bytes to %s:%s\n", len(data), terminal.Shown(b.Name), terminal.Shown(to))
}

func (a *commands) copyFrom(ctx context.Context, b personBox, from, file string) error {
	if err := b.recordEntry(ctx, apitype.SandboxEntering{Action: "copy from", Path: from}); err != nil {
		return err
	}
	content, err := hostapi.ReadFile.Ask(ctx, b.host, b.owner, hostapi.FileRequest{Sandbox: b.ID, Path: from,
		Limit: maxCopy})
	if err != nil {
		return err
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, path.Base(from))
	}
	if err := safefile.Create(file, content.Data, 0o600); errors.Is(err, fs.ErrExist) {
		return bailey.Conflict.Errorf("name another file, or remove it first", "%s is there already",
			terminal.Shown(file))
	} else if err != nil {
		return bailey.Unavailable.Wrapf(err, "name a file in a directory that you can write", "cannot write %s",
			terminal.Shown(file))
	}
	done := struct {
		File  string `json:"file"`
		Bytes int    `json:"bytes"`
	}{file, len(content.Data)}
	return a.PrintLine(done, "copied %d bytes to %s\n", done.Bytes, terminal.Shown(file))
}
