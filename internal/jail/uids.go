//go:build linux

package jail

import "sync"

// maxUIDs is the number of users for the cages of a gateway that runs as root. As long as there are enough, a user has
// one cage at a time: pending signals, message queues, pages of pipes and locked memory are counted per user on the
// whole machine.
const maxUIDs = 512

// uids counts the cages of each user, from the first on. If used is empty, there is one user for all.
type uids struct {
	mu   sync.Mutex
	used []int
}

// acquireOffset returns the user with the fewest cages, as an offset from the first, and the function that releases it.
func (u *uids) acquireOffset() (n int, leave func()) {
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

// A user is the user of a cage on the host, until the cage is gone.
type user struct {
	uid   int
	leave func()
}

// releaseUser releases the user; the cage must be gone.
func (u user) releaseUser() {
	if u.leave != nil {
		u.leave()
	}
}

// acquireUser takes a user for a cage.
func (j *Jail) acquireUser() user {
	n, leave := j.uids.acquireOffset()
	return user{j.hostUID + n, leave}
}
