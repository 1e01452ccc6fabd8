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
		Long: `Run an agent (claude, codex, opencode, or any command) in a cage: the project it is started in is writable, the
host's programs are there to be run, and nothing else of yours is: no home of yours, no keys, no agent's or daemon's
socket. It reaches its model, what settings.yaml lists under network for wrap, and what --egress names; every other
place is refused with a reason. Bailey's own calls are its one way to more, by a socket that knows nothing else.

The project is the top of the git repository, or the current directory. In it .git/config, .git/hooks, .bailey/,
.mcp.json, .claude/, .envrc, .vscode/, .idea/ and their like stay as they are; what appears under such a name is moved out of the
project when the agent has ended, and you are told how to have it back.

Its home is new each time; --keep-home keeps one for the project, below ~/.local/state/bailey-wrap.

  --egress host:port[,private][,plain][,noSNI]

--log shows what agents were refused, and what would allow it.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes. Policy decides it as agent.wrap; the ledger's
event wrap.start comes first. The exit code is the agent's own, 128+n after signal n.`,
		Example: "  bailey wrap -- claude\n  bailey wrap --keep-home --egress proxy.golang.org:443 -- claude\n  bailey wrap -- sh -c 'go test ./...'\n  bailey wrap --log --follow",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case w.log && len(args) > 0:
				return bailey.Invalid.New("--log stands alone", "bailey wrap --log")
			case w.follow && !w.log:
				return bailey.Invalid.New("--follow goes with --log", "bailey wrap --log --follow")
			case !w.log && (cmd.ArgsLenAtDash() != 0 || len(args) == 0):
				return bailey.Invalid.New("wrap wants -- and then an agent", "write: bailey wrap -- claude")
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
	f.StringArrayVar(&w.egress, "egress", nil, "a further `host:port` that it may reach this time; may be repeated")
	f.StringArrayVar(&w.env, "env", nil, "pass a variable on, `NAME` or NAME=value; may be repeated")
	f.StringVar(&w.mem, "memory", "", "bound its memory, as in 2G; 4G is what policy allows at first")
	f.IntVar(&w.tasks, "tasks", 0, "bound its processes and threads; 1024 is what policy allows at first")
	f.BoolVar(&w.keepHome, "keep-home", false, "keep its home for the next time in this project")
	f.BoolVar(&w.anyCase, "any-case", false,
		"start it also where names are found in any case, as .GIT for .git: what keeps files as they are can be got around there")
	f.BoolVar(&w.log, "log", false, "show what agents inside the wall were refused")
	f.BoolVar(&w.follow, "follow", false, "with --log: go on as more comes")
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
			return e, bailey.Invalid.Errorf("settings.yaml, under network, knows more: docs/egress.md",
				"--egress %s: %q is none of private, plain, noSNI", s, w)
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
				_, err = fmt.Fprintln(a.Stdout, "nothing was refused to an agent inside the wall")
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
