package jail

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// TestAttackUserOfOthers checks that if the gateway is root, no two concurrent cages have the same user, since signals,
// queues and pipes are counted per user. A user must be reused after its cage has ended.
func TestAttackUserOfOthers(t *testing.T) {
	ktest.Require(t, "root")
	j := newJail(t, Config{})
	if len(j.uids.used) == 0 {
		t.Fatalf("%d users are not mapped here", maxUIDs)
	}
	ids := func(c *child) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		var both []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Uid:") || strings.HasPrefix(line, "Gid:") {
				both = append(both, strings.Fields(line)[1])
			}
		}
		return strings.Join(both, " ")
	}
	var all []*child
	seen := map[string]bool{}
	for i := range 5 {
		c, err := j.spawnChild([]string{inside.Name, inside.Warm}[i%2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		id := ids(c)
		if want := fmt.Sprint(c.user.uid, c.user.uid); id != want || seen[id] || c.user.uid < j.hostUID || c.user.uid >= j.hostUID+maxUIDs {
			t.Errorf("cage %d is of %s, and was given %s; others are of %v", i, id, want, seen)
		}
		seen[id] = true
	}
	first := all[0].user.uid
	for _, c := range all {
		c.closeAndWait()
	}
	c, err := j.spawnChild(inside.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.closeAndWait()
	if c.user.uid != first {
		t.Errorf("after they ended the next is of %d, not of %d", c.user.uid, first)
	}
}

// TestLackOfUsers checks that if a gateway that is root has no users of their own for its cages, the cage names this
// gap in Lacks.
func TestLackOfUsers(t *testing.T) {
	ktest.Require(t, "root")
	for _, mapped := range []int{maxUIDs, 0} {
		j := newJail(t, Config{})
		j.uids = &uids{used: make([]int, mapped)}
		p, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if lacks := strings.Join(p.Cage().Lacks, "; "); strings.Contains(lacks, "a user of its own for each cage") != (mapped == 0) {
			t.Errorf("with %d users a cage says that it lacks %q", mapped, lacks)
		}
	}
}

// TestUsersAreShared checks that if there are more cages than users, they are distributed evenly. A single user must
// serve all.
func TestUsersAreShared(t *testing.T) {
	u := &uids{used: make([]int, 3)}
	var leave []func()
	for range 7 {
		_, l := u.acquireOffset()
		leave = append(leave, l)
	}
	if fmt.Sprint(u.used) != "[3 2 2]" {
		t.Errorf("used %v", u.used)
	}
	for _, l := range leave {
		l()
		l() // must have no effect the second time
	}
	if fmt.Sprint(u.used) != "[0 0 0]" {
		t.Errorf("used %v after all left", u.used)
	}
	if n, l := (&uids{}).acquireOffset(); n != 0 {
		t.Errorf("user %d of one", n)
	} else {
		l()
	}
}
