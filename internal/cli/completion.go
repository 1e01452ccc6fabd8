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
	"allow": (*App).capabilityWords, "deny-rule": (*App).capabilityWords, "jail explain": (*App).capabilityWords, "pack repin": (*App).capabilityWords,
	"approve": (*App).questionWords, "deny": (*App).questionWords, "approvals show": (*App).questionWords,
	"grants revoke": (*App).grantWords, "profile show": (*App).profileWords, "profile use": (*App).profileWords,
	"pack show": (*App).packWords, "pack uninstall": (*App).packWords,
	"sandbox show": (*App).sandboxWords, "sandbox exec": (*App).sandboxWords, "sandbox start": (*App).sandboxWords,
	"sandbox stop": (*App).sandboxWords, "sandbox pause": (*App).sandboxWords, "sandbox snapshot": (*App).sandboxWords,
	"sandbox restore": (*App).sandboxWords, "sandbox branch": (*App).sandboxWords, "sandbox extend": (*App).sandboxWords,
	"sandbox destroy": (*App).sandboxWords, "sandbox shell": (*App).sandboxWords, "sandbox ssh": (*App).sandboxWords,
	"sandbox diff": (*App).sandboxWords, "sandbox export": (*App).sandboxWords, "sandbox verify": (*App).sandboxWords,
	"receipts show": (*App).receiptWords, "receipts forget": (*App).receiptWords, "audit prove": (*App).receiptWords,
}

// setUpCompletion makes the shell completions query a running gateway. It starts no gateway and writes nothing. If no
// gateway runs, only built-in names are offered.
func (a *App) setUpCompletion(root *cobra.Command) {
	for _, cmd := range EveryVerb(root) {
		words, known := Completed[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]
		many := strings.Contains(cmd.Use, "…") || strings.Contains(cmd.Use, "...") && cmd.Name() == "use"
		switch {
		case known:
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, so string) ([]string,
				cobra.ShellCompDirective) {
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

// tryAsk sends a request to the gateway of the home, if one runs.
func tryAsk[Request, Answer any](ctx context.Context, a *App, e localapi.Endpoint[Request, Answer],
	r Request) (answer Answer, ok bool) {
	ctx, cancel := completionContext(ctx)
	defer cancel()
	c, err := a.Client()
	if err != nil {
		return answer, false
	}
	c.Start, c.Progress = nil, nil
	answer, err = e.Ask(ctx, c, r)
	return answer, err == nil
}

// completionContext returns a context that limits the total time of the queries made with it.
func completionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	patience, err := time.ParseDuration(os.Getenv(completionTimeout))
	if err != nil || patience <= 0 { // not reported: a completion must print only words
		patience = completionPatience
	}
	return context.WithTimeout(ctx, patience)
}

// completionWord returns a word with its description, in the format of the shell.
func completionWord(word, why string) string {
	return word + "\t" + terminal.TableCell(strings.Join(strings.Fields(why), " "))
}

func (a *App) capabilityWords(ctx context.Context) (words []string) {
	if l, ok := tryAsk(ctx, a, apitype.ListCapabilities, localapi.None{}); ok {
		for _, c := range l.Capabilities {
			if !c.Absent {
				words = append(words, completionWord(string(c.ID), c.Description))
			}
		}
		return words
	}
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return nil
	}
	for _, m := range catalog.All() {
		words = append(words, completionWord(string(m.ID), m.Description))
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
		if !strings.HasPrefix(name, so) ||
			slices.ContainsFunc(given, func(pair string) bool { return strings.HasPrefix(pair, name+"=") }) {
			continue
		}
		why := s.Properties[name].Description
		if slices.Contains(s.Required, name) {
			why = "(required) " + why
		}
		words = append(words, completionWord(name+"=", why))
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (a *App) schemaOf(ctx context.Context, id string) json.RawMessage {
	if c, ok := tryAsk(ctx, a, apitype.ShowCapability, apitype.ID{ID: id}); ok {
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
	l, _ := tryAsk(ctx, a, apitype.ListQuestions, apitype.QuestionRequest{})
	for _, q := range l.Approvals {
		words = append(words, completionWord(string(q.ID), string(q.Call)))
	}
	return words
}

// offeredReceipts is the number of latest receipts that are offered. A user who needs one by its ID has usually just
// seen it.
const offeredReceipts = 20

// receiptWords returns the latest receipts, newest first.
func (a *App) receiptWords(ctx context.Context) (words []string) {
	l, _ := tryAsk(ctx, a, apitype.ListReceipts, receipts.Filter{Limit: offeredReceipts})
	for _, r := range l.Receipts {
		words = append(words, completionWord(string(r.ID), string(r.Capability)+" "+r.Status()))
	}
	return words
}

// explainedWords returns the words that can be explained: capabilities and receipts.
func (a *App) explainedWords(ctx context.Context) []string {
	ctx, cancel := completionContext(ctx)
	defer cancel()
	return append(a.capabilityWords(ctx), a.receiptWords(ctx)...)
}

func (a *App) grantWords(ctx context.Context) (words []string) {
	l, _ := tryAsk(ctx, a, apitype.ListGrants, localapi.None{})
	for _, g := range l.Grants {
		words = append(words, completionWord(string(g.ID), string(g.Capability)))
	}
	return words
}

func (a *App) profileWords(ctx context.Context) (words []string) {
	l, _ := tryAsk(ctx, a, apitype.ListProfiles, localapi.None{})
	for _, p := range l.Profiles {
		words = append(words, p.Name)
	}
	return words
}

func (a *App) packWords(ctx context.Context) (words []string) {
	l, _ := tryAsk(ctx, a, apitype.ListPacks, apitype.PackSearch{})
	for _, p := range l.Packs {
		words = append(words, completionWord(p.Name, p.Description))
	}
	return words
}
