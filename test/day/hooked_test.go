//go:build linux

package day

import "path/filepath"

// hooked checks the decisions about the agent's own shell and editor, if the agent has them.
func (d *day) hooked() {
	c, ok := d.agent.(*claude)
	if !ok {
		return
	}
	in := &insider{c}
	in.does("add a key by mistake", "git log --oneline -1")
	in.does("it is hidden from agents", "cat "+d.key)
	in.does("is for a person, in a terminal", "BAILEY_OPERATOR=1 bailey approve a-00000000000000000000000000 --yes")
	in.wants(true, "Write", map[string]any{"file_path": filepath.Join(d.u.project, ".envrc"), "content": "echo here\n"}, "")
	in.wants(true, "Read", map[string]any{"file_path": filepath.Join(d.u.home, ".bailey", "settings.yaml")}, "outside the workspaces")
	if out, code := d.u.does(d.u.project, "ls", ".envrc"); code == 0 {
		d.t.Errorf("a file that programs act on was written without a word: %s", out)
	}
}
