package direct

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// layerWords describes the purpose of each isolation layer. docs/jail.md has the details.
var layerWords = map[string]string{
	"userns":        "uid and gid 1000 inside, nobody's rights outside",
	"mountns":       "mounts of its own",
	"pidns":         "sees no process but its own; all end with the call",
	"netns":         "a network without an interface",
	"ipcns":         "shared memory and queues of its own",
	"utsns":         "a host name of its own",
	"cgroupns":      "sees no control group but its own",
	"session":       "no terminal of anybody's",
	"init-guarded":  "what starts the tool is out of its reach",
	"root-readonly": "a root made of the tool's own files",
	"tmp-private":   "an empty /tmp and HOME, gone with the call",
	"dev-private":   "the devices that do no harm",
	"proc-private":  "a /proc that shows the cage alone",
	"binds-noexec":  "what the call names, nothing in it can run",
	"masks":         "secrets below what is shown, covered",
	"kept":          "what may not change in a place that is written",
	"keyring":       "no key of yours",
	"rlimits":       "bounded tasks, memory and files",
	"cgroup":        "bounded memory, tasks and processor, all together",
	"watcher":       "memory and tasks looked at, all together",
	"fds-closed":    "its three streams and nothing else open",
	"caps-none":     "no capability",
	"no-new-privs":  "none by way of a program either",
	"landlock":      "files, ports and signals once more, by another wall",
	"seccomp":       "no system call that a tool has no need of",
	"ids":           "an id without rights, and no group",
	"subreaper":     "what it started ends with it",
	"exec-once":     "it starts itself and nothing else",
	"env-listed":    "the program, with a listed environment",
}

func (a *commands) jailExplainVerb() *cobra.Command {
	var inputs []string
	var warm bool
	cmd := &cobra.Command{
		Use: "explain CAPABILITY [-i key=value]... [--warm]", Short: "Print the plan of the cage that would hold a call",
		Long: `Print the plan of the cage that would hold a call: one step a line, numbered in the order in which they are
done, by the layer that rests on them. The digest is the one that the same call's receipt names. It is a look:
nothing is decided or run, and no receipt is left.

A plan that is seen again gets a warm helper. With --warm: what that does once, what for each call, and every
system call of the two processes that it starts, in order and with the line of the plan that it is for.`,
		Example: "  bailey jail explain git.status -i repo=.\n  bailey jail explain git.status -i repo=. --warm",
		Args:    cli.OneArg("a capability, as in: bailey jail explain git.status -i repo=."),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := apitype.ParseInputs(inputs)
			if err != nil {
				return err
			}
			q := localapi.Query{Verb: "cage", Call: &localapi.CallQuery{Capability: bailey.CapabilityID(args[0]), Input: input, Text: true}}
			show := a.explained
			if warm {
				show = a.warmed
			}
			return cli.Query(cmd.Context(), a.App, q, show)
		},
	}
	cmd.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd.Flags().BoolVar(&warm, "warm", false, "what a warm helper makes of the plan")
	return cmd
}

func (a *commands) explained(p apitype.CagePlan) {
	if p.Kind == bailey.Uncaged {
		fmt.Fprintf(a.Stdout, "no cage: %s would run with all that its user may do\n", terminal.Shown(p.Binary))
		return
	}
	fmt.Fprintf(a.Stdout, "cage %s, plan %s\n", p.Kind, p.PlanDigest)
	for _, word := range []struct {
		what string
		list []string
	}{{"absent here", p.Absent}, {"lacking", p.Lacks}} {
		if len(word.list) > 0 {
			fmt.Fprintf(a.Stdout, "%s: %s\n", word.what, terminal.Shown(strings.Join(word.list, ", ")))
		}
	}
	if p.Lesser != "" {
		fmt.Fprintln(a.Stdout, "not the full cage: "+terminal.Shown(p.Lesser))
	}
	if len(p.Plan) == 0 {
		fmt.Fprintln(a.Stdout, "the plan names a secret, so its text is withheld")
	}
	for _, layer := range append(slices.Clone(p.Layers), "") {
		a.layer(layer, p.Plan)
	}
}

// warmWords describes when, and by which process, a step is done.
var warmWords = []struct{ when, words string }{
	{"once", "once, by the helper, which no tool can reach"},
	{"call", "for each call, by the helper, in new namespaces"},
	{"init", "for each call, by the first process in them: these system calls"},
	{"tool", "for each call, by what becomes the tool: these system calls"},
}

func (a *commands) warmed(p apitype.CagePlan) {
	fmt.Fprintf(a.Stdout, "cage %s, plan %s\n", p.Kind, p.PlanDigest)
	if len(p.Warm) == 0 {
		fmt.Fprintln(a.Stdout, "no helper serves this plan: each call gets a cage that nothing was built of before")
	}
	for _, w := range warmWords {
		for i, s := range slices.DeleteFunc(slices.Clone(p.Warm), func(s bailey.WarmStep) bool { return s.When != w.when }) {
			if i == 0 {
				fmt.Fprintln(a.Stdout, w.words)
			}
			text, line := s.Text, ""
			if text == "" && s.Line <= len(p.Plan) {
				text = p.Plan[s.Line-1].Text
			}
			if s.Line > 0 {
				line = strconv.Itoa(s.Line)
			}
			fmt.Fprintf(a.Stdout, "  %3s  %s\n", line, terminal.CutLine(text))
		}
	}
}

// layer prints one layer with its steps, which keep their numbers from the plan. Long lines, such as a seccomp filter,
// are cut; --json prints them in full.
func (a *commands) layer(name string, steps []apitype.PlanStep) {
	title := fmt.Sprintf("%-13s  %s", name, layerWords[name])
	if name == "" {
		title = "scaffolding"
	}
	fmt.Fprintln(a.Stdout, strings.TrimSpace(title))
	for i, s := range steps {
		if s.Layer == name {
			fmt.Fprintf(a.Stdout, "  %3d  %s\n", i+1, terminal.CutLine(s.Text))
		}
	}
}
