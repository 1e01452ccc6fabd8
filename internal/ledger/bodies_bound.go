package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Limits in bytes, unless the configuration says otherwise: for one day, so that calls with much output do not displace
// the bodies of other days, and for all bodies.
const (
	bodiesOfADay = 1 << 30
	bodiesInAll  = 8 << 30
)

// stored is the size of all bodies. trim reads it from the directory when the process starts; add counts from then on.
type stored struct {
	mu  sync.Mutex
	day map[int64]int64 // bytes, by days since 1970
	all int64
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// countBody counts a file and reports whether a limit is exceeded now.
func (b *bodies) countBody(at time.Time, size int64) bool {
	b.stored.mu.Lock()
	defer b.stored.mu.Unlock()
	if b.stored.day == nil {
		b.stored.day = map[int64]int64{}
	}
	b.stored.day[dayOf(at)] += size
	b.stored.all += size
	return b.stored.day[dayOf(at)] > b.daily || b.stored.all > b.most
}

// file is one body, or an incomplete body that was left behind.
type file struct {
	name string
	size int64
	at   time.Time
}

// enforceLimits removes the oldest bodies of each day that exceeds its limit. If all bodies together exceed their limit, it then
// removes the oldest of all. It removes a tenth more than it must, because it reads the whole directory and should not
// do so for every body.
func (b *bodies) enforceLimits() error {
	names, err := b.dir.listNames()
	if err != nil {
		return err
	}
	var files []file
	day, all := map[int64]int64{}, int64(0)
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(b.dir.path, name))
		if err != nil || !bodyName().MatchString(name) || !st.Mode().IsRegular() || st.Size() == 0 {
			continue // gone meanwhile, not a body, or the mark of a forgotten receipt
		}
		files = append(files, file{name, st.Size(), st.ModTime()})
		day[dayOf(st.ModTime())] += st.Size()
		all += st.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	var errs []error
	gone := map[string]bool{}
	remove := func(f file) {
		id, part := splitBodyName(f.name)
		if err := b.removePart(id, part); err != nil {
			if len(errs) < 10 {
				errs = append(errs, err)
			}
			return
		}
		gone[f.name] = true
		day[dayOf(f.at)] -= f.size
		all -= f.size
	}
	crowded := map[int64]bool{}
	for d, n := range day {
		crowded[d] = n > b.daily
	}
	for _, f := range files { // first, so that a day over its limit costs the other days nothing
		if d := dayOf(f.at); crowded[d] && day[d] > b.daily-b.daily/10 {
			remove(f)
		}
	}
	for tooMany := all > b.most; tooMany && len(files) > 0 && all > b.most-b.most/10; files = files[1:] {
		if !gone[files[0].name] {
			remove(files[0])
		}
	}
	b.stored.mu.Lock()
	b.stored.day, b.stored.all = day, all
	b.stored.mu.Unlock()
	return errors.Join(errs...)
}
