package onboard

import (
	"context"
	"slices"
	"strings"
)

// Tree is a command with its help and its subcommands.
type Tree struct {
	Words   []string // after the program's name
	Summary string   // from its parent's list
	Help    Help
	Mode    string // an option that is the command, as in tar --list
	Subs    []*Tree
	Skipped string // why its help is not known, or ""
}

// Probe runs the tool with these arguments and returns its output. An error ends the exploration.
type Probe func(ctx context.Context, args []string) (stdout, stderr string, err error)

// Bounds limit the depth and the number of probes.
type Bounds struct {
	Depth  int // levels of subcommands below the program
	Probes int
}

// Explore asks a tool for its help, then its subcommands, level by level, so that a limit omits the deepest ones. If a
// subcommand prints the help of a command above it, it does not exist or has no help.
func Explore(ctx context.Context, b Bounds, probe Probe) (*Tree, error) {
	e := &explorer{bounds: b, probe: probe}
	root := &Tree{}
	level := []exploreTask{{tree: root}}
	for depth := 0; len(level) > 0; depth++ {
		var next []exploreTask
		for i, a := range level {
			if i >= sameAlways && allSame(level[:i], a) {
				a.tree.Skipped = sameHelp
				continue
			}
			text, err := e.askForHelp(ctx, a)
			if err != nil {
				return nil, err
			}
			above := append(slices.Clone(a.above), text)
			for _, s := range a.tree.Subs {
				next = append(next, exploreTask{s, a.tree, above})
			}
		}
		if depth == b.Depth {
			for _, a := range next {
				a.tree.Skipped = "it is deeper than the maximum depth"
			}
			break
		}
		level = next
	}
	root.useListing()
	return root, nil
}

type explorer struct {
	bounds Bounds
	probe  Probe
	used   int
}

// exploreTask is a command to explore, below commands whose help is known.
type exploreTask struct {
	tree  *Tree
	under *Tree
	above []string // the help texts of these
}

const sameHelp = "its help is the same as that of its parent command"

// sameAlways is the number of commands after which a tool is taken to have one help for all.
const sameAlways = 4

// allSame reports whether all commands beside a that were asked have the help of the command above.
func allSame(asked []exploreTask, a exploreTask) bool {
	n := 0
	for _, o := range asked {
		if o.under == a.under {
			if o.tree.Skipped != sameHelp {
				return false
			}
			n++
		}
	}
	return n >= sameAlways
}

// askForHelp tries --help and then -h, and returns the text that could be read.
func (e *explorer) askForHelp(ctx context.Context, a exploreTask) (text string, err error) {
	t, last := a.tree, ""
	for _, word := range []string{"--help", "-h"} {
		if e.used == e.bounds.Probes {
			t.Skipped = "the limit of probes was reached before it"
			return "", nil
		}
		e.used++
		stdout, stderr, err := e.probe(ctx, append(slices.Clone(t.Words), word))
		if err != nil {
			return "", err
		}
		if words := lastWords(stderr); words != "" && len(t.Words) == 0 {
			last = "; it ends with: " + words
		}
		help, text := readFullerHelp(stdout, stderr)
		switch {
		case help.Empty():
			continue
		case slices.Contains(a.above, text):
			t.Skipped = sameHelp
			return "", nil
		}
		t.Help = help
		for _, c := range help.Commands {
			t.Subs = append(t.Subs, &Tree{Words: append(slices.Clone(t.Words), c.Name), Summary: c.Summary})
		}
		return text, nil
	}
	t.Skipped = "its help could not be parsed" + last
	return "", nil
}

// useListing describes the commands below t by their lines in its help, if none of them has a help of its own, as with
// systemctl. If some have, the others may not exist.
func (t *Tree) useListing() {
	for _, s := range t.Subs {
		s.useListing()
	}
	if len(t.Subs) < sameAlways || slices.ContainsFunc(t.Subs, func(s *Tree) bool { return s.Skipped != sameHelp }) {
		return
	}
	for i, s := range t.Subs {
		s.Skipped, s.Help = "", t.Help.commandOf(t.Help.Commands[i])
	}
}

// readFullerHelp reads stdout, or stderr if that contains more: many tools print help together with an error.
func readFullerHelp(stdout, stderr string) (Help, string) {
	out, err := Read(stdout), Read(stderr)
	if helpSize(err) > helpSize(out) {
		return err, stderr
	}
	return out, stdout
}

// lastWords returns the last line that a tool wrote to stderr.
func lastWords(stderr string) string {
	lines := cleanLines(stderr[max(0, len(stderr)-4<<10):])
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i] != "" {
			return flattenText(lines[i], 100)
		}
	}
	return ""
}

func helpSize(h Help) int {
	n := len(h.Commands) + len(h.Options) + len(h.Modes) + len(h.Operands)
	if h.Usage {
		n++
	}
	return n
}

// Leaves returns the commands without subcommands. left contains commands about which nothing is known.
func (t *Tree) Leaves() (leaves, left []*Tree) {
	switch {
	case t.Skipped != "":
		return nil, []*Tree{t}
	case len(t.Subs) == 0 && len(t.Help.Modes) > 0:
		for _, m := range t.Help.Modes {
			leaves = append(leaves, &Tree{Words: t.Words, Mode: m.longName(), Summary: m.Summary, Help: t.Help})
		}
		return leaves, nil
	case len(t.Subs) == 0:
		return []*Tree{t}, nil
	}
	for _, s := range t.Subs {
		l, x := s.Leaves()
		leaves, left = append(leaves, l...), append(left, x...)
	}
	return leaves, left
}

func (t *Tree) fullName() string { return strings.TrimSpace(strings.Join(t.Words, " ") + " " + t.Mode) }
