package jail

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// TestAttackUserOfOthers: under a gateway that is root no two cages at once are of one user, whose signals, queues and pipes are counted
// together; a user whose cage has ended serves another.
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
		c, err := j.spawn([]string{inside.Name, inside.Warm}[i%2])
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
		c.dismiss()
	}
	c, err := j.spawn(inside.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.dismiss()
	if c.user.uid != first {
		t.Errorf("after they ended the next is of %d, not of %d", c.user.uid, first)
	}
}

// TestUsersAreShared: when there are more cages than users, each serves about as many; where there is one user, it serves all.
func TestUsersAreShared(t *testing.T) {
	u := &uids{used: make([]int, 3)}
	var leave []func()
	for range 7 {
		_, l := u.take()
		leave = append(leave, l)
	}
	if fmt.Sprint(u.used) != "[3 2 2]" {
		t.Errorf("used %v", u.used)
	}
	for _, l := range leave {
		l()
		l() // a second time changes nothing
	}
	if fmt.Sprint(u.used) != "[0 0 0]" {
		t.Errorf("used %v after all left", u.used)
	}
	if n, l := (&uids{}).take(); n != 0 {
		t.Errorf("user %d of one", n)
	} else {
		l()
	}
}
