package main

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
	"bailey/internal/receipts"
	"bailey/internal/wire"
)

// completionPatience limits how long a shell waits for completions while the user types. The variable completionTimeout
// overrides it, in the format of time.ParseDuration.
const (
	completionPatience = 300 * time.Millisecond
	completionTimeout  = "BAILEY_COMPLETION_TIMEOUT"
)

// completed maps a command to the function that lists its arguments from the home. Any other command completes its
// subcommands and flags, and file names if it takes arguments.
var completed = map[string]func(*app, context.Context) []string{
	"run": (*app).capabilityWords, "capabilities show": (*app).capabilityWords, "policy explain": (*app).explainedWords,
	"jail explain": (*app).capabilityWords, "pack repin": (*app).capabilityWords,
	"approve": (*app).questionWords, "deny": (*app).questionWords, "approvals show": (*app).questionWords,
	"grants revoke": (*app).grantWords, "profile show": (*app).profileWords, "profile use": (*app).profileWords,
	"pack show": (*app).packWords, "pack uninstall": (*app).packWords,
	"receipts show": (*app).receiptWords, "receipts forget": (*app).receiptWords, "audit prove": (*app).receiptWords,
}

// completion makes the shell completions query a running gateway. It starts no gateway and writes nothing. If no
// gateway runs, only built-in names are offered.
func (a *app) completion(root *cobra.Command) {
	for _, cmd := range everyVerb(root) {
		words, known := completed[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]
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

// everyVerb returns all commands below cmd, without those that cobra adds.
func everyVerb(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" && c.Name() != "help" {
			all = append(append(all, c), everyVerb(c)...)
		}
	}
	return all
}

// known queries the gateway of the home, if one runs.
func known[T any](ctx context.Context, a *app, q wire.Query) (answer T, ok bool) {
	ctx, cancel := patient(ctx)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return answer, false
	}
	c.Start, c.Progress = nil, nil
	return answer, c.Look(ctx, q, &answer) == nil
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
	return word + "\t" + cell(strings.Join(strings.Fields(why), " "))
}

func (a *app) capabilityWords(ctx context.Context) (words []string) {
	if l, ok := known[capabilityList](ctx, a, wire.Query{Verb: "capabilities"}); ok {
		for _, c := range l.Capabilities {
			if !c.Absent {
				words = append(words, offer(string(c.ID), c.Description))
			}
		}
		return words
	}
	catalog, err := builtIn()
	if err != nil {
		return nil
	}
	for _, m := range catalog.All() {
		words = append(words, offer(string(m.ID), m.Description))
	}
	return words
}

// inputWords returns the inputs of the capability that is already on the line.
func (a *app) inputWords(cmd *cobra.Command, args []string, so string) ([]string, cobra.ShellCompDirective) {
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

func (a *app) schemaOf(ctx context.Context, id string) json.RawMessage {
	if c, ok := known[capability](ctx, a, wire.Query{Verb: "capability", Args: map[string]any{"id": id}}); ok {
		return c.InputSchema
	}
	catalog, err := builtIn()
	if err != nil {
		return nil
	}
	m, err := catalog.Lookup(bailey.CapabilityID(id))
	if err != nil {
		return nil
	}
	return m.InputSchema()
}

func (a *app) questionWords(ctx context.Context) (words []string) {
	l, _ := known[questionList](ctx, a, wire.Query{Verb: "approvals"})
	for _, q := range l.Approvals {
		words = append(words, offer(string(q.ID), string(q.Call)))
	}
	return words
}

// offeredReceipts is the number of latest receipts that are offered. A user who needs one by its ID has usually just
// seen it.
const offeredReceipts = 20

// receiptWords returns the latest receipts, newest first.
func (a *app) receiptWords(ctx context.Context) (words []string) {
	l, _ := known[receiptList](ctx, a, wire.Query{Verb: "receipts", Args: filterArgs(receipts.Filter{Limit: offeredReceipts})})
	for _, r := range l.Receipts {
		words = append(words, offer(string(r.ID), string(r.Capability)+" "+r.status()))
	}
	return words
}

// explainedWords returns the words that can be explained: capabilities and receipts.
func (a *app) explainedWords(ctx context.Context) []string {
	ctx, cancel := patient(ctx)
	defer cancel()
	return append(a.capabilityWords(ctx), a.receiptWords(ctx)...)
}

func (a *app) grantWords(ctx context.Context) (words []string) {
	l, _ := known[grantList](ctx, a, wire.Query{Verb: "grants"})
	for _, g := range l.Grants {
		words = append(words, offer(string(g.ID), string(g.Capability)))
	}
	return words
}

func (a *app) profileWords(ctx context.Context) (words []string) {
	l, _ := known[profileList](ctx, a, wire.Query{Verb: profilesLook})
	for _, p := range l.Profiles {
		words = append(words, p.Name)
	}
	return words
}

func (a *app) packWords(ctx context.Context) (words []string) {
	l, _ := known[packRows](ctx, a, wire.Query{Verb: packsLook})
	for _, p := range l.Packs {
		words = append(words, offer(p.Name, p.Description))
	}
	return words
}
