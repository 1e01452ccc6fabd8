package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Bounds on the bytes of all bodies, unless the configuration says otherwise: of one day, so that calls which write a lot do not
// displace the bodies of other days, and in all.
const (
	bodiesOfADay = 1 << 30
	bodiesInAll  = 8 << 30
)

// stored is the size of all bodies: trim reads it from the directory when the process starts, and add counts from then on.
type stored struct {
	mu  sync.Mutex
	day map[int64]int64 // bytes, by days since 1970
	all int64
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// add counts a file, and tells whether there is too much now.
func (b *bodies) add(at time.Time, size int64) bool {
	b.stored.mu.Lock()
	defer b.stored.mu.Unlock()
	if b.stored.day == nil {
		b.stored.day = map[int64]int64{}
	}
	b.stored.day[dayOf(at)] += size
	b.stored.all += size
	return b.stored.day[dayOf(at)] > b.daily || b.stored.all > b.most
}

// file is one body, or a leftover part of one.
type file struct {
	name string
	size int64
	at   time.Time
}

// trim removes the oldest bodies of a day that has too many, and then the oldest of all while there are too many. It removes a tenth
// more than it must, since it reads the whole directory and should not do so for each body.
func (b *bodies) trim() error {
	names, err := b.dir.list()
	if err != nil {
		return err
	}
	var files []file
	day, all := map[int64]int64{}, int64(0)
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(b.dir.path, name))
		if err != nil || !bodyName().MatchString(name) || !st.Mode().IsRegular() || st.Size() == 0 {
			continue // gone meanwhile, not ours, or the mark of one that was forgotten
		}
		files = append(files, file{name, st.Size(), st.ModTime()})
		day[dayOf(st.ModTime())] += st.Size()
		all += st.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	var errs []error
	gone := map[string]bool{}
	remove := func(f file) {
		id, part := split(f.name)
		if err := b.remove(id, part); err != nil {
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
	for _, f := range files { // first, so that a day with too many costs no other day anything
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
