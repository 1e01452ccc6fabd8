package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policyfiles"
	"bailey/internal/terminal"
)

// noStarting is the value of --policy that leaves the policy as it is.
const noStarting = "none"

// policyReport is the JSON report about the policy to begin with.
type policyReport struct {
	Name   string `json:"name"`
	Text   string `json:"text"` // what it allows
	Dir    string `json:"dir"`
	Digest string `json:"digest"`
	Rules  int    `json:"rules"` // with the built-in ones
	Tests  int    `json:"tests"`
}

// checkPolicyFlag rejects a policy to begin with that does not exist.
func (i *initRun) checkPolicyFlag() error {
	if i.policy == "" || i.policy == noStarting {
		return nil
	}
	_, err := policyfiles.Starting(i.policy, i.Bare)
	return err
}

// planPolicy writes the policy to begin with into the home, compares it with the policy in use, and returns the change that
// applies it. undo removes the files.
func (i *initRun) planPolicy(ctx context.Context, name string) (c *fileChange, err error) {
	files, err := policyfiles.Starting(name, i.Bare)
	if err != nil {
		return nil, err
	}
	dir := i.client.Home.Path("policy")
	undo, err := writeStarting(dir, files)
	if err != nil {
		return nil, err
	}
	defer func() {
		if c == nil {
			err = errors.Join(err, undo())
		}
	}()
	seen, err := apitype.ComparePolicy.Ask(ctx, i.client, apitype.PolicyRequest{Dir: dir})
	if err != nil {
		return nil, err
	}
	text := policyfiles.DescribeStarting(name)
	report := &policyReport{name, text, dir, seen.Digest, seen.Rules, seen.Tests}
	switch {
	case !seen.Differs:
		i.report.Policy, undo = report, func() error { return nil }
		return nil, nil
	case seen.Applied.Digest != "":
		return nil, bailey.Conflict.New("another policy is in use: "+seen.Applied.Dir,
			"change that one, for example with bailey allow, or leave --policy out")
	}
	rules, err := describeRules(files)
	if err != nil {
		return nil, err
	}
	return &fileChange{file: dir, note: "the policy " + text, diff: rules, undo: undo,
		make: func(ctx context.Context) error {
			_, err := apitype.ApplyPolicy.Do(ctx, i.client, i.op, apitype.PolicyRequest{Dir: dir, Digest: seen.Digest,
				Base: seen.Applied.Digest})
			if err == nil {
				i.report.Policy = report
			}
			return err
		}}, nil
}

// describeRules returns a line for each rule: those that allow, then those that ask.
func describeRules(files policyfiles.Files) (string, error) {
	catalog, err := packstore.BuiltIn()
	if err != nil {
		return "", err
	}
	e, err := policyfiles.Load(files, catalog)
	if err != nil {
		return "", err
	}
	var lines []string
	for r := range e.Engine.Rules() {
		switch {
		case r.BuiltIn:
		case r.IsPermit():
			lines = append(lines, fmt.Sprintf("  allow  %-16s %s\n", r.ID, r.Reason))
		default:
			lines = append(lines, fmt.Sprintf("  ask    %-16s %s\n", r.ID, r.Reason))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "") + "  every other call is denied\n", nil
}

// writeStarting writes a policy to begin with into a directory that has none. undo removes it.
func writeStarting(dir string, files policyfiles.Files) (undo func() error, err error) {
	had, err := policyfiles.ReadDir(dir)
	switch {
	case err == nil && had.Digest() == files.Digest():
		return func() error { return nil }, nil
	case bailey.KindOf(err) != bailey.NotFound:
		return nil, bailey.Conflict.New(dir+" already has a policy", "move it away first, or add rules to it with bailey allow")
	}
	var list []apitype.KeptFile
	for _, f := range files.All() {
		list = append(list, apitype.KeptFile{Name: f.Name, Text: string(f.Text)})
	}
	undo, err = replacePolicyFiles(dir, list)
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// offersPolicy reports whether a person is asked which policy to begin with: at a terminal, while the home has no policy of
// its own.
func (i *initRun) offersPolicy(ctx context.Context) (bool, error) {
	if i.policy != "" || i.Yes || i.undo || i.apply || i.op != localapi.Terminal {
		return false, nil
	}
	now, err := apitype.ShowPolicy.Ask(ctx, i.client, apitype.PolicyName{})
	if err != nil || now.Digest != "" {
		return false, err
	}
	_, err = policyfiles.ReadDir(filepath.Join(string(i.client.Home), "policy"))
	return bailey.KindOf(err) == bailey.NotFound, nil
}

// confirmWithPolicy asks whether to write the changes, and with which policy to begin. A plain yes keeps the built-in one.
func (i *initRun) confirmWithPolicy(ctx context.Context) (policy string, err error) {
	i.Explain("\nAgents can begin with one of these policies; you can edit it later, in " +
		terminal.CutLine(i.client.Home.Path("policy")) + ":\n  " +
		strings.Join(policyfiles.DescribeStartings(), "\n  ") + "\n" +
		"Answer with its name to write this and see that policy, or with y to keep the built-in one.\n")
	word, err := askWord(ctx, os.Stdin, i.Stdin, i.Dialog(), "Write this?")
	switch _, unknown := policyfiles.Starting(word, i.Bare); {
	case err != nil:
		return "", err
	case unknown == nil:
		return word, nil
	case isYes(word):
		return "", nil
	}
	return "", errNotConfirmed("nothing was changed")
}

// applyChosenPolicy shows the policy that a person chose, asks again and applies it.
func (i *initRun) applyChosenPolicy(ctx context.Context, name string) error {
	c, err := i.planPolicy(ctx, name)
	if err != nil || c == nil {
		return err
	}
	i.Explain(c.String())
	err = i.Confirm(ctx, "Apply this policy?")
	if err == nil {
		err = c.make(ctx)
	}
	if err != nil {
		return errors.Join(err, c.undo())
	}
	return nil
}

// undoChanges takes back what was written for the comparison of changes that are not made.
func undoChanges(changes []*fileChange, err error) error {
	for _, c := range slices.Backward(changes) {
		if c.undo != nil {
			err = errors.Join(err, c.undo())
		}
	}
	return err
}

func (c *fileChange) String() string {
	return fmt.Sprintf("%s: %s\n%s", terminal.CutLine(c.file), c.note, c.diff)
}
