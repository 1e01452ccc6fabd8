//go:build linux

package day

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"bailey/internal/ktest"
	"bailey/internal/ktest/guestimage"
)

// boxed has the agent repeat the fault of the shop in a sandbox, break the machine, return to a snapshot, try the cure in one
// of two branches, and destroy all of them.
func (d *day) boxed() {
	if ktest.Has("qemu-system-x86_64") != nil || guestimage.FindFiles() != nil {
		d.t.Log("no virtual machine can be started: nothing is broken today")
		return
	}
	d.installSandboxes()
	d.tryImage()
	d.agent.leave() // it got its list of tools when it connected
	d.agent = d.hire()

	id := regexp.MustCompile(`"id": ?"(sb-[a-z2-7]{26})"`)
	text := d.allowed("sandbox_create", map[string]any{"image": "debian", "name": "shop"}, `"running"`, `"accelerator"`, `"imageDigest"`)
	found := id.FindStringSubmatch(text)
	if found == nil {
		d.t.Fatalf("the sandbox has no id: %s", text)
	}
	shop := found[1]
	run := func(box string, words ...any) map[string]any {
		return map[string]any{"sandbox": box, "command": words}
	}
	at := func(more map[string]any) map[string]any { more["sandbox"] = shop; return more }
	read := []any{"cat", "/etc/shop.conf"}
	d.allowed("sandbox_write_file", at(map[string]any{"path": "/etc/shop.conf", "stdin": "port=5433\n"}), `"size"`)
	d.allowed("sandbox_exec", run(shop, "sh", "-c", "id -un; grep -c 5433 /etc/shop.conf; echo token=ghp_0123456789abcdefABCDEF0123456789abcd"), "root", "1", "[REDACTED_")
	d.allowed("sandbox_snapshot", at(map[string]any{"name": "faulty"}), `"faulty"`)
	d.allowed("sandbox_exec", run(shop, "sh", "-c", "rm -rf /etc /bin; exit 0"))
	d.refused("failed", "sandbox_exec", run(shop, "ls", "/"), "is not in")
	d.allowed("sandbox_restore", at(map[string]any{"snapshot": "faulty"}), `"running"`)
	d.allowed("sandbox_exec", run(shop, read...), "port=5433")

	var branches []string
	for _, m := range id.FindAllStringSubmatch(d.allowed("sandbox_branch", at(map[string]any{"count": 2}), shop), -1) {
		branches = append(branches, m[1])
	}
	if len(branches) != 2 {
		d.t.Fatalf("branches: %v", branches)
	}
	d.allowed("sandbox_edit_file", map[string]any{"sandbox": branches[0], "path": "/etc/shop.conf", "old": "5433", "new": "5432"}, `"count"`)
	d.allowed("sandbox_exec", run(branches[0], read...), "port=5432")
	d.allowed("sandbox_exec", run(branches[1], read...), "port=5433")
	d.allowed("sandbox_exec", run(shop, read...), "port=5433")
	d.want = append(d.want, "ok")
	if out := d.u.must(d.u.project, "bailey", "sandbox", "list"); strings.Count(out, "running") != 3 {
		d.t.Errorf("the user sees other sandboxes: %s", out)
	}
	for _, box := range append(branches, shop) {
		d.allowed("sandbox_destroy", map[string]any{"sandbox": box}, box)
	}
	d.refused("failed", "sandbox_exec", run(shop, "id"), "there is no sandbox")
	d.allowed("sandbox_remove_snapshot", map[string]any{"snapshot": "faulty"}, "faulty")
	d.u.must(d.u.home, "bailey-host", "stop")
}

// tryImage has the user create the first sandbox of the image, which boots it. On a busy machine that takes longer than the
// agent waits.
func (d *day) tryImage() {
	d.want = append(d.want, "ok", "ok", "ok") // create, list and destroy
	if out := d.u.must(d.u.project, "bailey", "sandbox", "create", "debian", "--name", "first"); !strings.Contains(out, "running") {
		d.t.Errorf("the first sandbox: %s", out)
	}
	d.u.must(d.u.project, "bailey", "sandbox", "destroy", "first")
}

// installSandboxes gives the user the host of sandboxes and an image.
func (d *day) installSandboxes() {
	u := d.u
	u.build("", filepath.Join(u.home, "go", "bin"), "./cmd/bailey-host")
	home := filepath.Join(u.home, ".bailey")
	guestimage.Put(d.t, home, "debian")
	if u.who == nil {
		return
	}
	images := filepath.Join(home, "images")
	if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", u.who.Uid, u.who.Gid), images).CombinedOutput(); err != nil {
		d.t.Fatalf("chown: %v: %s", err, out)
	}
}
