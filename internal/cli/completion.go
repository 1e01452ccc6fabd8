package cli

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

// completionPatience limits how long a shell waits for completions while the user types. The variable completionTimeout
// overrides it, in the format of time.ParseDuration.
const (
	completionPatience = 300 * time.Millisecond
	completionTimeout  = "BAILEY_COMPLETION_TIMEOUT"
)

// Completed maps a command to the function that lists its arguments from the home. Any other command completes its
// subcommands and flags, and file names if it takes arguments.
var Completed = map[string]func(*App, context.Context) []string{
	"run": (*App).capabilityWords, "capabilities show": (*App).capabilityWords, "policy explain": (*App).explainedWords,
	"jail explain": (*App).capabilityWords, "pack repin": (*App).capabilityWords,
	"approve": (*App).questionWords, "deny": (*App).questionWords, "approvals show": (*App).questionWords,
	"grants revoke": (*App).grantWords, "profile show": (*App).profileWords, "profile use": (*App).profileWords,
	"pack show": (*App).packWords, "pack uninstall": (*App).packWords,
	"receipts show": (*App).receiptWords, "receipts forget": (*App).receiptWords, "audit prove": (*App).receiptWords,
}

// completion makes the shell completions query a running gateway. It starts no gateway and writes nothing. If no
// gateway runs, only built-in names are offered.
func (a *App) completion(root *cobra.Command) {
	for _, cmd := range EveryVerb(root) {
		words, known := Completed[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]
		many := strings.Contains(cmd.Use, "…") || strings.Contains(cmd.Use, "...") && cmd.Name() == "use"
		switch {
		case known:
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, so string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 && !many {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return slices.DeleteFunc(words(a, cmd.Context()), func(w string) bool {
					word, _, _ := strings.Cut(w, "\t")
					return !strings.HasPrefix(word, so) || slices.Contains(args, word)
				}), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
			}
		case cmd.ValidArgsFunction == nil && !strings.Contains(cmd.Use, " "):
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		if known && cmd.Flags().Lookup("input") != nil {
			cmd.RegisterFlagCompletionFunc("input", a.inputWords)
		}
	}
}

// EveryVerb returns all commands below cmd, without those that cobra adds.
func EveryVerb(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" && c.Name() != "help" {
			all = append(append(all, c), EveryVerb(c)...)
		}
	}
	return all
}

// known queries the gateway of the home, if one runs.
func known[T any](ctx context.Context, a *App, q localapi.Query) (answer T, ok bool) {
	err := a.fromRunning(ctx, func(ctx context.Context, c *localapi.Client) error { return c.Look(ctx, q, &answer) })
	return answer, err == nil
}

// answerOf sends a request to the gateway of the home, if one runs.
func answerOf[Request, Answer any](ctx context.Context, a *App, e localapi.Endpoint[Request, Answer],
	r Request) (answer Answer, ok bool) {
	err := a.fromRunning(ctx, func(ctx context.Context, c *localapi.Client) (err error) {
		answer, err = e.Ask(ctx, c, r)
		return err
	})
	return answer, err == nil
}

// fromRunning calls ask with a client that starts no gateway.
func (a *App) fromRunning(ctx context.Context, ask func(context.Context, *localapi.Client) error) error {
	ctx, cancel := patient(ctx)
	defer cancel()
	c, err := a.Client()
	if err != nil {
		return err
	}
	c.Start, c.Progress = nil, nil
	return ask(ctx, c)
}

// patient returns a context that limits the total time of the queries made with it.
func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	patience, err := time.ParseDuration(os.Getenv(completionTimeout))
	if err != nil || patience <= 0 { // not reported: a completion must print only words
		patience = completionPatience
	}
	return context.WithTimeout(ctx, patience)
}

// offer returns a word with its description, in the format of the shell.
func offer(word, why string) string {
	return word + "\t" + terminal.TableCell(strings.Join(strings.Fields(why), " "))
}

func (a *App) capabilityWords(ctx context.Context) (words []string) {
	if l, ok := known[apitype.CapabilityList](ctx, a, localapi.Query{Verb: "capabilities"}); ok {
		for _, c := range l.Capabilities {
			if !c.Absent {
				words = append(words, offer(string(c.ID), c.Description))
			}
		}
		return words
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return nil
	}
	for _, m := range catalog.All() {
		words = append(words, offer(string(m.ID), m.Description))
	}
	return words
}

// inputWords returns the inputs of the capability that is already on the line.
func (a *App) inputWords(cmd *cobra.Command, args []string, so string) ([]string, cobra.ShellCompDirective) {
	if strings.Contains(so, "=") {
		return nil, cobra.ShellCompDirectiveDefault // the value can be a file name
	}
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	schema := a.schemaOf(cmd.Context(), args[0])
	var s struct {
		Properties map[string]struct{ Description string }
		Required   []string
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	given, _ := cmd.Flags().GetStringArray("input")
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !strings.HasPrefix(name, so) || slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			continue
		}
		why := s.Properties[name].Description
		if slices.Contains(s.Required, name) {
			why = "(required) " + why
		}
		words = append(words, offer(name+"=", why))
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (a *App) schemaOf(ctx context.Context, id string) json.RawMessage {
	if c, ok := known[apitype.Capability](ctx, a, localapi.Query{Verb: "capability", Args: map[string]any{"id": id}}); ok {
		return c.InputSchema
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return nil
	}
	m, err := catalog.Lookup(bailey.CapabilityID(id))
	if err != nil {
		return nil
	}
	return m.InputSchema()
}

func (a *App) questionWords(ctx context.Context) (words []string) {
	l, _ := known[apitype.QuestionList](ctx, a, localapi.Query{Verb: "approvals"})
	for _, q := range l.Approvals {
		words = append(words, offer(string(q.ID), string(q.Call)))
	}
	return words
}

// offeredReceipts is the number of latest receipts that are offered. A user who needs one by its ID has usually just
// seen it.
const offeredReceipts = 20

// receiptWords returns the latest receipts, newest first.
func (a *App) receiptWords(ctx context.Context) (words []string) {
	l, _ := answerOf(ctx, a, apitype.ListReceipts, receipts.Filter{Limit: offeredReceipts})
	for _, r := range l.Receipts {
		words = append(words, offer(string(r.ID), string(r.Capability)+" "+r.Status()))
	}
	return words
}

// explainedWords returns the words that can be explained: capabilities and receipts.
func (a *App) explainedWords(ctx context.Context) []string {
	ctx, cancel := patient(ctx)
	defer cancel()
	return append(a.capabilityWords(ctx), a.receiptWords(ctx)...)
}

func (a *App) grantWords(ctx context.Context) (words []string) {
	l, _ := known[apitype.GrantList](ctx, a, localapi.Query{Verb: "grants"})
	for _, g := range l.Grants {
		words = append(words, offer(string(g.ID), string(g.Capability)))
	}
	return words
}

func (a *App) profileWords(ctx context.Context) (words []string) {
	l, _ := known[apitype.ProfileList](ctx, a, localapi.Query{Verb: apitype.ProfilesQuery})
	for _, p := range l.Profiles {
		words = append(words, p.Name)
	}
	return words
}

func (a *App) packWords(ctx context.Context) (words []string) {
	l, _ := known[apitype.PackRows](ctx, a, localapi.Query{Verb: apitype.PacksQuery})
	for _, p := range l.Packs {
		words = append(words, offer(p.Name, p.Description))
	}
	return words
}
