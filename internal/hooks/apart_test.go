package hooks

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/hook"
)

// TestWorkspacesHaveNoHooks checks that programs and scripts in a workspace are refused: an agent could write the hook
// that should control it.
func TestWorkspacesHaveNoHooks(t *testing.T) {
	y := newYard(t)
	workspace := filepath.Join(y.home, "state")
	mark := filepath.Join(workspace, "ran")
	inside := filepath.Join(workspace, "hook")
	if err := os.WriteFile(inside, []byte("#!/bin/sh\necho > "+mark+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(y.home, folder, "link")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	named := y.script(t, "named", "#!"+inside+"\n")
	twice := y.script(t, "twice", "#! /usr/bin/env -S "+inside+"\n")
	for _, argv := range [][]string{{inside}, {link}, {"sh", inside}, {"sh", link}, {named}, {twice}, {y.script(t, "chain", "#!"+named+"\n")}} {
		for _, bare := range []bool{false, true} {
			os.Remove(mark)
			h := hook.Hook{Event: hook.OnPreToolUse, Argv: argv, Unsandboxed: bare, Timeout: hook.DefaultTimeout, Read: []string{workspace}}
			y.Workspaces = func() []string { return []string{workspace} }
			if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != bailey.NeverRan || !strings.Contains(o.Reason, "where agents write") {
				t.Errorf("%q, without a cage %v: %+v", argv, bare, o)
			}
			y.Workspaces = nil
			y.try(t, h)
			if _, err := os.Stat(mark); bare && err != nil {
				t.Errorf("%q: it does not run where nobody looks: this test sees nothing", argv)
			}
		}
	}
	h := y.shell(t, "exit 0")
	y.Workspaces = func() []string { return []string{workspace} }
	h.Argv = append(h.Argv, workspace)
	if o, _ := y.try(t, h); o.Effect != hook.Kept {
		t.Errorf("a workspace may be named: %+v", o)
	}
}

// TestWorkspacesLeadNowhere checks that a workspace path in Read or Write stays in the workspace, even if an agent
// replaces it, for example with a symlink.
func TestWorkspacesLeadNowhere(t *testing.T) {
	y := newYard(t)
	workspace, elsewhere := filepath.Join(y.home, "state"), filepath.Join(y.home, "elsewhere")
	for dir, text := range map[string]string{workspace: "of the project", elsewhere: "of the user"} {
		if err := os.MkdirAll(filepath.Join(dir, "notes"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "notes", "a"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	notes, kept := filepath.Join(workspace, "notes"), filepath.Join(workspace, "kept")
	reads, writes := y.shell(t, "cat "+notes+"/a >&2; exit 2"), hook.Hook{Event: hook.OnPreToolUse, Timeout: hook.DefaultTimeout}
	reads.Read = []string{notes}
	writes.Argv = []string{y.script(t, "writes", "#!/bin/sh\necho x > "+notes+"/b && exit 2\n")}
	writes.Write = []string{notes}
	held := func() []string { return []string{workspace} }
	y.Workspaces = held
	if got := y.says(t, reads); got != "of the project" {
		t.Errorf("what lies there: %q", got)
	}
	if _, a := y.try(t, writes); a.Exit != 2 {
		t.Errorf("%+v", a)
	}
	if err := os.Rename(notes, kept); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "notes"), notes); err != nil {
		t.Fatal(err)
	}
	for _, h := range []hook.Hook{reads, writes} {
		if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != bailey.NeverRan || !strings.Contains(o.Reason, "leads out of the workspace") {
			t.Errorf("%+v", o)
		}
	}
	y.Workspaces = nil
	if got := y.says(t, reads); got != "of the user" {
		t.Errorf("where nobody looks: %q, and this test sees nothing", got)
	}
	if err := os.Remove(notes); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, notes); err != nil {
		t.Fatal(err)
	}
	y.Workspaces = held
	if o, a := y.try(t, writes); o.Effect != hook.Blocked || a.Exit == bailey.NeverRan {
		t.Errorf("a link within it: %+v", o)
	}
}

// TestWorkspacesByAnotherName checks that a path through a workspace counts as inside it, wherever it ends.
func TestWorkspacesByAnotherName(t *testing.T) {
	y := newYard(t)
	workspace, elsewhere := filepath.Join(y.home, "state"), filepath.Join(y.home, "elsewhere")
	for _, dir := range []string{workspace, elsewhere} {
		if err := os.MkdirAll(filepath.Join(dir, "notes"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	alias, through := filepath.Join(y.home, "alias"), filepath.Join(y.home, "through")
	for link, to := range map[string]string{alias: "state", through: workspace + "/led/notes", workspace + "/led": "../elsewhere"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	y.Workspaces = func() []string { return []string{workspace} }
	for _, path := range []string{alias + "/led/notes", alias + "/led", through, through + "/none"} {
		if y.workspaceOf(path) == "" {
			t.Errorf("%s passes through no workspace", path)
		}
	}
	for _, path := range []string{elsewhere, y.home, y.home + "/./notes/../elsewhere"} {
		if w := y.workspaceOf(path); w != "" {
			t.Errorf("%s is in %s", path, w)
		}
	}
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{"true"}, Timeout: hook.DefaultTimeout, Read: []string{alias + "/led"}}
	if o, a := y.try(t, h); o.Effect != hook.Blocked || a.Exit != bailey.NeverRan || !strings.Contains(o.Reason, "leads out of the workspace") {
		t.Errorf("%+v", o)
	}
}

// TestGivenButNotShown checks that a hook cannot read a script given to its interpreter by default, and that a warning
// names the remedy.
func TestGivenButNotShown(t *testing.T) {
	y := newYard(t)
	script := y.script(t, "check", "#!/bin/sh\nexit 0\n")
	h := hook.Hook{Event: hook.OnPreToolUse, Argv: []string{"sh", script, "/etc/ssl/certs", "no path"}, Timeout: hook.DefaultTimeout}
	_, plain := y.try(t, y.shell(t, ""))
	// without warnings about this host, such as a missing control group
	news := func(a Asked) []Warning {
		return slices.DeleteFunc(slices.Clone(a.Warning), func(w Warning) bool { return slices.Contains(plain.Warning, w) })
	}
	o, a := y.try(t, h)
	if w := of("hook.sandbox", news(a)); o.Effect != hook.Blocked || len(w) != 1 || !strings.Contains(w[0].Text, script) || !strings.Contains(w[0].Hint, "filesystem.read") {
		t.Errorf("%+v %+v", o, a)
	}
	for _, shows := range []func(*hook.Hook){
		func(h *hook.Hook) { h.Read = []string{script} },
		func(h *hook.Hook) { h.Read = []string{filepath.Dir(script)} },
		func(h *hook.Hook) { h.Argv = []string{script, script} },
	} {
		h := h
		shows(&h)
		if o, a := y.try(t, h); o.Effect != hook.Kept || len(news(a)) != 0 {
			t.Errorf("%q %q: %+v", h.Argv, h.Read, a)
		}
	}
}
