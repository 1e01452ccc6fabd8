package direct

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// wrapFlags holds the parsed flags of `wrap`.
type wrapFlags struct {
	egress, env       []string
	mem               string
	tasks             int
	keepHome, anyCase bool
	log, follow       bool
}

func (a *commands) wrapVerb() *cobra.Command {
	var w wrapFlags
	cmd := &cobra.Command{
		Use:   "wrap [flags] -- AGENT [ARG]...",
		Short: "Run an agent in the agent jail",
		Long: `Run an agent (claude, codex, opencode, or any command) in a jail. The project directory is
writable and the host's programs can be run; all else is hidden: your home, keys, and the sockets of agents
and daemons. It reaches its model, the hosts in settings.yaml under network for wrap, and those of --egress;
other hosts are refused with a reason. For anything else it makes calls to Bailey through a socket that
accepts nothing else.

The project is the top of the git repository, or the current directory. In it .git/config, .git/hooks,
.bailey/, .mcp.json, .claude/, .envrc, .vscode/, .idea/ and similar files are read-only; new files of such
names are moved out of the project when the agent has ended, and a message says how to restore them.

Its home is new each time; --keep-home keeps one for the project, below ~/.local/state/bailey-wrap.

  --egress host:port[,private][,plain][,noSNI]

--log shows what agents were refused, and how to allow it.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes. Policy decides it as
agent.wrap; the ledger's event wrap.start is written first. The exit code is the agent's own, 128+n after
signal n.`,
		Example: "  bailey wrap -- claude\n  bailey wrap --keep-home --egress proxy.golang.org:443 -- claude\n  bailey wrap -- sh -c 'go test ./...'\n  bailey wrap --log --follow",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case w.log && len(args) > 0:
				return bailey.Invalid.New("--log cannot be combined with other flags", "use: bailey wrap --log")
			case w.follow && !w.log:
				return bailey.Invalid.New("--follow needs --log", "use: bailey wrap --log --follow")
			case !w.log && (cmd.ArgsLenAtDash() != 0 || len(args) == 0):
				return bailey.Invalid.New("wrap needs -- and then an agent", "use: bailey wrap -- claude")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.log {
				return a.wrapLog(cmd.Context(), w.follow)
			}
			return a.wrapAgent(cmd.Context(), w, args)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&w.egress, "egress", nil, "another `host:port` that it may reach this time; may be repeated")
	f.StringArrayVar(&w.env, "env", nil, "pass on a variable, `NAME` or NAME=value; may be repeated")
	f.StringVar(&w.mem, "memory", "", "limit its memory, for example 2G (default policy allows 4G)")
	f.IntVar(&w.tasks, "tasks", 0, "limit its processes and threads (default policy allows 1024)")
	f.BoolVar(&w.keepHome, "keep-home", false, "keep its home for later runs in this project")
	f.BoolVar(&w.anyCase, "any-case", false,
		"start it even if the file system ignores case; protected files can then be changed")
	f.BoolVar(&w.log, "log", false, "show what agents in the jail were refused")
	f.BoolVar(&w.follow, "follow", false, "with --log: wait for more")
	return a.YesFlag(cmd, noTerminalFlag)
}

// parseReach parses an --egress argument: a place and its flags.
func parseReach(s string) (bailey.Endpoint, error) {
	words := strings.Split(s, ",")
	e, err := bailey.ParseEndpoint(words[0])
	if err != nil {
		return e, err
	}
	flags := map[string]*bool{"private": &e.Private, "plain": &e.Plain, "noSNI": &e.NoSNI}
	for _, w := range words[1:] {
		p := flags[w]
		if p == nil {
			return e, bailey.Invalid.Errorf("see docs/egress.md for more options in settings.yaml, under network",
				"--egress %s: %q is not one of private, plain, noSNI", s, w)
		}
		*p = true
	}
	return e, nil
}

// wrapLog prints the refusals. With follow it queries every second.
func (a *commands) wrapLog(ctx context.Context, follow bool) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	var shown uint64
	for {
		k, err := apitype.ListWraps.Ask(ctx, c, localapi.None{})
		if err != nil {
			return err
		}
		if a.JSON && !follow {
			return a.Print(k)
		}
		for _, r := range k.Refused {
			if r.N <= shown {
				continue
			}
			shown = r.N
			if a.JSON {
				err = a.Print(r)
			} else {
				err = a.refusalLine(k, r)
			}
			if err != nil {
				return err
			}
		}
		if !follow {
			if shown == 0 {
				_, err = fmt.Fprintln(a.Stdout, "no agent in the jail was refused anything")
			}
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *commands) refusalLine(k apitype.WrapsKnown, r apitype.RefusedTo) error {
	_, err := fmt.Fprintf(a.Stdout, "%s  %s  %s\n", r.At.Local().Format(time.DateTime), terminal.CutLine(k.Agent(r)),
		terminal.CutLine(r.Reason))
	if err == nil && r.Hint != "" {
		_, err = fmt.Fprintf(a.Stdout, "  %s\n", terminal.CutLine(r.Hint))
	}
	return err
}
