//go:build linux

package jail

import "sync"

// maxUIDs is how many users the cages of a gateway that is root are. A user is of one cage at a time, as long as there are
// enough: signals that wait, message queues, pages of pipes and locked memory are counted by user on the whole machine.
const maxUIDs = 512

// uids counts the cages of each user, from the first on. Without any there is one user for all.
type uids struct {
	mu   sync.Mutex
	used []int
}

// take returns the first user who has no cage, or has fewest, as an offset, and what gives it back.
func (u *uids) take() (n int, leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.used) == 0 {
		return 0, func() {}
	}
	for i, cages := range u.used {
		if cages < u.used[n] {
			n = i
		}
	}
	u.used[n]++
	return n, sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.used[n]--
	})
}

// A user is the one that a cage has outside, until the cage is gone.
type user struct {
	uid   int
	leave func()
}

// left says that the cage is gone.
func (u user) left() {
	if u.leave != nil {
		u.leave()
	}
}

// user takes a user for a cage.
func (j *Jail) user() user {
	n, leave := j.uids.take()
	return user{j.hostUID + n, leave}
}
