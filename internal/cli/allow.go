package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy/review"
	"bailey/internal/policyfiles"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// placeFlags are the flags that narrow a rule of bailey allow or bailey deny-rule.
type placeFlags struct {
	here  bool
	agent string
	until string
}

func (p *placeFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.here, "here", false, "only for calls that start in the current directory or below it")
	f.StringVar(&p.agent, "agent", "", "only for the agent with this `name`")
}

// narrowWish adds the flags to a wish.
func (p *placeFlags) narrowWish(cmd *cobra.Command, w *review.Wish) error {
	for _, name := range []string{"agent", "until"} { // an empty variable of a script must not make the rule wider
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return bailey.Invalid.New("--"+name+" is empty", "name a value, or leave --"+name+" out")
		}
	}
	w.Agent = p.agent
	if p.here {
		dir, err := os.Getwd()
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return bailey.Unavailable.Wrap(err, "cannot find the current directory", "")
		}
		if !utf8.ValidString(dir) {
			return bailey.Invalid.New("the name of the current directory is not UTF-8", "rename it, or leave --here out")
		}
		w.Dir = dir
	}
	if p.until != "" {
		span, ok := parseDuration(p.until)
		if !ok || span < time.Minute || span > 366*24*time.Hour {
			return bailey.Invalid.Errorf("write for example --until 2h", "--until %s is not a duration from 1m to 366d", p.until)
		}
		w.Until = time.Now().Add(span)
	}
	return nil
}

func (a *App) allowVerb() *cobra.Command {
	var place placeFlags
	var egress []string
	cmd := &cobra.Command{
		Use: "allow CAPABILITY", Short: "Allow a capability with a new rule",
		Long: `Write a rule that allows a capability, show the difference, and apply the policy after your confirmation. The rule is added
to allowed.cedar in the directory of the policy in use, or in $BAILEY_HOME/policy if the built-in policy is in use; the
built-in rules are then written there too. To take the rule back, delete it there and run bailey policy apply.

If a rule always asks a person before the capability, for example before a download, that rule gets an exception, an
unless clause that names the capability; to take the rule back, delete the exception too. Rules that ask about some inputs
only, and rules about calls that cannot be undone, still ask.

If the hosts that the capability reaches depend on its input, name them with --egress.`,
		Example: "  bailey allow git.commit --here\n  bailey allow npm.install --agent claude --until 2h\n  bailey allow http.get --egress docs.example.com:443",
		Args:    OneArg("a capability"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := review.Wish{Capability: bailey.CapabilityID(args[0]), Egress: egress}
			if err := place.narrowWish(cmd, &w); err != nil {
				return err
			}
			return a.addRule(cmd.Context(), "allow", w)
		},
	}
	place.addFlags(cmd)
	cmd.Flags().StringVar(&place.until, "until", "", "for this `long`, for example 2h")
	cmd.Flags().StringArrayVar(&egress, "egress", nil, "a `host:port` that it may reach; may be repeated")
	return a.OperatorVerb(cmd)
}

func (a *App) denyRuleVerb() *cobra.Command {
	var place placeFlags
	var reason string
	cmd := &cobra.Command{
		Use: "deny-rule CAPABILITY", Short: "Deny a capability with a new rule",
		Long: `Write a rule that denies a capability, whatever other rules allow, show the difference, and apply the policy after your
confirmation. The rule is added to allowed.cedar, as bailey allow describes.`,
		Example: "  bailey deny-rule git.push --reason 'pushes are made by the release team'\n  bailey deny-rule http.get --agent claude",
		Args:    OneArg("a capability"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := review.Wish{Capability: bailey.CapabilityID(args[0]), Forbid: true, Reason: reason}
			if err := place.narrowWish(cmd, &w); err != nil {
				return err
			}
			return a.addRule(cmd.Context(), "deny-rule", w)
		},
	}
	place.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "an operator denied it", "the `text` that agents are told")
	return a.OperatorVerb(cmd)
}

// addRule writes the policy in use with one more rule into its directory and applies it. If it is not applied, the files
// are as before.
func (a *App) addRule(ctx context.Context, verb string, w review.Wish) error {
	_, c, err := a.OperatorClient(verb)
	if err != nil {
		return err
	}
	unlock, err := localapi.LockFile(c.Home.Path("allow.lock")) // until the rule is applied or taken back
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return bailey.Conflict.New("another bailey allow or deny-rule is running", "answer its question, then run this again")
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot lock the policy's files", "")
	}
	defer unlock()
	added, err := apitype.AddRule.Ask(ctx, c, w)
	if err != nil {
		return err
	}
	dir := added.Dir
	if dir == "" {
		dir = filepath.Join(string(c.Home), "policy")
	}
	if err := checkPolicyDir(dir, added.Base); err != nil {
		return err
	}
	undo, err := replacePolicyFiles(dir, added.Files)
	if err != nil {
		return errors.Join(err, undo())
	}
	for _, id := range added.Lifted {
		a.Explain(fmt.Sprintf("rule %s will no longer ask about these calls\n", terminal.Shown(string(id))))
	}
	for _, id := range added.Asks {
		a.Explain(fmt.Sprintf("rule %s will still ask a person about some of these calls: bailey policy explain %s\n", terminal.Shown(string(id)), w.Capability))
	}
	if err := a.applyPolicy(ctx, []string{dir}, false, ""); err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// checkPolicyDir checks that a directory has the policy in use, or no policy.
func checkPolicyDir(dir, digest string) error {
	files, err := policyfiles.ReadDir(dir)
	switch {
	case bailey.KindOf(err) == bailey.NotFound && digest == "":
		return nil
	case err != nil:
		return err
	case files.Digest() == digest:
		return nil
	case digest == "":
		return bailey.Conflict.New(dir+" has a policy, but the built-in policy is in use",
			"run bailey policy apply to apply it first, or move it away")
	}
	return bailey.Conflict.New(dir+" differs from the policy in use", "run bailey policy apply to apply or see the difference first")
}

// replacePolicyFiles writes files into a directory, the file of the new rule last: after a crash there is no rule without
// the policy that it was added to. undo restores the files as they were, except those that were changed meanwhile.
func replacePolicyFiles(dir string, files []apitype.KeptFile) (undo func() error, err error) {
	var undos []func() error
	undo = func() (err error) {
		for _, f := range slices.Backward(undos) {
			err = errors.Join(err, f())
		}
		return err
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		undos = append(undos, func() error { os.Remove(dir); return nil }) // fails if it has other files
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return undo, bailey.Unavailable.Wrap(err, "cannot create the policy's directory", "")
	}
	files = slices.Clone(files)
	if i := slices.IndexFunc(files, func(f apitype.KeptFile) bool { return f.Name == review.WishFile }); i >= 0 {
		last := files[i]
		files = append(slices.Delete(files, i, i+1), last)
	}
	for _, f := range files {
		path, perm := filepath.Join(dir, f.Name), fs.FileMode(0o600)
		old, err := safefile.Read(path, 4<<20)
		if err != nil {
			return undo, bailey.Unavailable.Wrap(err, "cannot read "+path, "")
		}
		if old != nil && string(old) == f.Text {
			continue
		}
		if info, err := os.Lstat(path); err == nil {
			perm = info.Mode().Perm()
		}
		undos = append(undos, func() error {
			now, err := safefile.Read(path, 4<<20)
			switch {
			case err == nil && string(now) != f.Text:
				return bailey.Conflict.New(path+" was changed meanwhile and stays as it is", "run bailey policy apply to see the difference")
			case err == nil && old == nil:
				return os.Remove(path)
			case err == nil:
				return safefile.Put(dir, f.Name, old, perm, nil)
			}
			return err
		})
		if err := safefile.Put(dir, f.Name, []byte(f.Text), perm, nil); err != nil {
			undos = undos[:len(undos)-1]
			return undo, err
		}
	}
	return undo, nil
}
