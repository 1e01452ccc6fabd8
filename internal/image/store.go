package image

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/safefile"
	"bailey/internal/strictjson"
)

const (
	recordFile = "image.json"
	storeLock  = ".lock"
	newPrefix  = ".new-"
	oldPrefix  = ".old-"
	maxRecord  = 1 << 20 // bytes of image.json
	restTime   = 50 * time.Millisecond
)

// A Store is a directory of images. Its methods may be called by several goroutines and processes.
type Store struct {
	dir     string
	mu      sync.Mutex
	digests map[identity]string // of files that have not changed since they were read
}

// A record is the content of image.json. The paths in Image are names of files beside it.
type record struct {
	Image Image           `json:"image"`
	Files map[string]file `json:"files"` // by name
}

// A file is one file of an image, as it was when its digest was computed.
type file struct {
	SHA256 string   `json:"sha256"`
	As     identity `json:"as"`
}

// An identity changes when the content of a file does. Times are in nanoseconds.
type identity struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"`
	CTime int64  `json:"ctime"`
}

// Open returns the store in a directory, which is created if it does not exist, and removes half-made images.
func Open(dir string) (*Store, error) {
	if err := systemSupport(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explainWrite(err, dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() || safefile.Wide(info) {
		return nil, bailey.Invalid.Errorf("use a directory of mode 0700 that nothing else uses",
			"images cannot be kept in %s, which has the mode %v", dir, info.Mode())
	}
	s := &Store{dir: dir, digests: map[identity]string{}}
	return s, s.removeHalfMade()
}

// Dir is the directory of the store.
func (s *Store) Dir() string { return s.dir }

// removeHalfMade removes directories of images that nobody makes or removes any more.
func (s *Store) removeHalfMade() error {
	unlock, err := s.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) && !strings.HasPrefix(e.Name(), oldPrefix) {
			continue
		}
		at := filepath.Join(s.dir, e.Name())
		lock, err := lockFile(at, true, false)
		if errors.Is(err, errLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(os.RemoveAll(at), lock.Close())
		}
		if err != nil {
			return bailey.Unavailable.Wrap(err, "cannot remove the half-made image "+at, "remove it")
		}
	}
	return nil
}

// lockStore locks the names in the store, which takes as long as a rename.
func (s *Store) lockStore() (unlock func() error, err error) {
	name := filepath.Join(s.dir, storeLock)
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE|safefile.NoFollow, 0o600)
	if err != nil {
		return nil, explainWrite(err, s.dir)
	}
	f.Close()
	lock, err := lockFile(name, true, true)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// A Use is an image that cannot be removed until Close.
type Use struct {
	Image
	lock *os.File
}

// Close ends the use.
func (u *Use) Close() error { return u.lock.Close() }

// Use returns an image and keeps it from being removed. The lock also ends with this process, so a process that adopts
// a
// machine must use its image again.
func (s *Store) Use(name string) (*Use, error) {
	lock, err := s.lockImage(name, false)
	if err != nil {
		return nil, err
	}
	i, err := s.readImage(name, true)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Use{i, lock}, nil
}

// Get returns an image whose files have their digests.
func (s *Store) Get(name string) (Image, error) {
	u, err := s.Use(name)
	if err != nil {
		return Image{}, err
	}
	return u.Image, u.Close()
}

// List returns all images by name. Files that have changed since they were added are not read: Get does that.
func (s *Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	list := []Image{}
	for _, e := range entries {
		if CheckName(e.Name()) != nil {
			continue
		}
		i, err := s.readImage(e.Name(), false)
		if errors.Is(err, bailey.NotFound) {
			continue // removed meanwhile
		}
		if err != nil {
			i = Image{Name: e.Name(), Layers: []Layer{}, Problem: err.Error()}
		}
		list = append(list, i)
	}
	return list, nil
}

// lockImage locks the directory of an image. If it is in use, the error has the kind Conflict.
func (s *Store) lockImage(name string, exclusive bool) (*os.File, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	lock, err := lockFile(filepath.Join(s.dir, name), exclusive, false)
	switch {
	case errors.Is(err, errLocked) && exclusive:
		return nil, bailey.Conflict.Wrapf(err, "destroy the sandboxes that use it: bailey sandbox list",
			"the image %s is in use", name)
	case errors.Is(err, errLocked):
		return nil, bailey.Conflict.Wrapf(err, "try again", "the image %s is being removed", name)
	case errors.Is(err, fs.ErrNotExist):
		return nil, s.missingImage(name)
	}
	return lock, err
}

func (s *Store) missingImage(name string) error {
	return bailey.NotFound.Errorf("bailey image list shows the images; make one with bailey image build debian",
		"there is no image %s", name)
}

// readImage reads image.json and compares the files with it. Only if read is true, files are read whose identity
// changed.
func (s *Store) readImage(name string, read bool) (Image, error) {
	dir := filepath.Join(s.dir, name)
	text, err := safefile.Read(filepath.Join(dir, recordFile), maxRecord)
	if err == nil && text == nil {
		if _, err = os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			return Image{}, s.missingImage(name)
		}
		err = errors.New(recordFile + " is missing")
	}
	var r record
	if err == nil {
		if err = strictjson.Check(text, 8); err == nil {
			err = strictjson.Decode(text, &r)
		}
	}
	if err == nil {
		err = r.Image.checkRecord()
	}
	if err != nil {
		return Image{}, spoiltImage(name, err)
	}
	sums := map[string]string{}
	for _, f := range r.Image.filePaths() {
		if sums[f], err = s.compareFile(filepath.Join(dir, f), r.Files[f], read); err != nil {
			return Image{}, spoiltImage(name, err)
		}
	}
	if r.Image.digestFiles(sums) != r.Image.Digest {
		return Image{}, spoiltImage(name, errors.New("its digest is not that of its files"))
	}
	return r.Image.atPlace(dir, name, sums), nil
}

func spoiltImage(name string, err error) error {
	return bailey.Conflict.Wrapf(err, "remove it with bailey image remove "+name+", and build or import it again",
		"the image %s was changed or is damaged", name)
}

// atPlace returns the image with paths instead of names.
func (i Image) atPlace(dir, name string, sums map[string]string) Image {
	i.Name, i.Kernel, i.Initrd = name, filepath.Join(dir, i.Kernel), filepath.Join(dir, i.Initrd)
	layers := []Layer{}
	for _, l := range i.Layers {
		layers = append(layers, Layer{filepath.Join(dir, l.Path), l.Format, sums[l.Path]})
	}
	i.Layers = layers
	return i
}

// compareFile returns the digest of a file, or an error if it is not the recorded one.
func (s *Store) compareFile(name string, want file, read bool) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|safefile.NoFollow|safefile.NoWait, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	id, err := identifyFile(f)
	if err != nil {
		return "", err
	}
	if id == want.As {
		return want.SHA256, nil
	}
	if id.Size != want.As.Size {
		return "", fmt.Errorf("%s has %d bytes instead of %d", name, id.Size, want.As.Size)
	}
	if !read {
		return want.SHA256, nil
	}
	s.mu.Lock()
	got := s.digests[id]
	s.mu.Unlock()
	if got == "" {
		if got, err = digestRested(f, id); err != nil {
			return "", err
		}
		s.mu.Lock()
		s.digests[id] = got
		s.mu.Unlock()
	}
	if got != want.SHA256 {
		return "", fmt.Errorf("the SHA-256 of %s is %s instead of %s", name, got, want.SHA256)
	}
	return got, nil
}

// digestRested returns the SHA-256 of a file that did not change for restTime before it was read, and not meanwhile.
func digestRested(f *os.File, id identity) (string, error) {
	time.Sleep(min(restTime, restTime-time.Since(time.Unix(0, id.CTime))))
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, id.Size)); err != nil {
		return "", err
	}
	if now, err := identifyFile(f); err != nil || now != id {
		return "", errors.Join(err, fmt.Errorf("%s changes while it is read", f.Name()))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Remove removes an image that is not in use, even a damaged one. first, if it is set, records that just before.
func (s *Store) Remove(name string, first func() error) error {
	lock, err := s.lockImage(name, true)
	if err != nil {
		return err
	}
	defer lock.Close()
	unlock, err := s.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	if first != nil {
		if err := first(); err != nil {
			return err
		}
	}
	old := filepath.Join(s.dir, oldPrefix+rand.Text())
	if err := os.Rename(filepath.Join(s.dir, name), old); err != nil {
		return explainWrite(err, s.dir)
	}
	return os.RemoveAll(old)
}

// A Draft is an image that is being made. It ends with Commit or Abandon.
type Draft struct {
	store *Store
	name  string
	dir   string
	lock  *os.File
}

// Create begins an image. The name must be free, now and at Commit.
func (s *Store) Create(name string) (*Draft, error) {
	if err := s.checkFree(name); err != nil {
		return nil, err
	}
	unlock, err := s.lockStore()
	if err != nil {
		return nil, err
	}
	defer unlock() // the directory is locked before anybody can take it for a half-made one
	d := &Draft{store: s, name: name, dir: filepath.Join(s.dir, newPrefix+rand.Text())}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, explainWrite(err, s.dir)
	}
	if d.lock, err = lockFile(d.dir, true, false); err != nil {
		os.Remove(d.dir)
		return nil, err
	}
	return d, nil
}

func (s *Store) checkFree(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	_, err := os.Lstat(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return bailey.Conflict.Wrapf(err, "choose another with --name, or remove it: bailey image remove "+name,
		"there is an image %s", name)
}

// Path returns the path of a file of the draft.
func (d *Draft) Path(file string) string { return filepath.Join(d.dir, file) }

// Abandon removes the draft. It does nothing after Commit.
func (d *Draft) Abandon() error {
	if d.lock == nil {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.dir), d.lock.Close())
	d.lock = nil
	return err
}

// Commit adds the image to the store. Its paths are names of files of the draft; digests and sizes are computed.
// first, if it
// is set, records the image just before it is added. If it or anything else fails, nothing remains.
func (d *Draft) Commit(i Image, first func(Image) error) (Image, error) {
	defer d.Abandon()
	i.Name, i.Built = "", i.Built.UTC().Truncate(time.Second)
	if i.Built.IsZero() {
		i.Built = time.Now().UTC().Truncate(time.Second)
	}
	if i.Layers == nil {
		i.Layers = []Layer{}
	}
	if err := i.checkRecord(); err != nil {
		return Image{}, bailey.Internal.Wrap(err, "the image was made wrongly", "")
	}
	r, sums := record{Image: i, Files: map[string]file{}}, map[string]string{}
	for _, name := range i.filePaths() {
		f, err := sealFile(d.Path(name))
		if err != nil {
			return Image{}, explainWrite(err, d.store.dir)
		}
		r.Files[name], sums[name] = f, f.SHA256
		r.Image.Size += f.As.Size
	}
	for n := range r.Image.Layers {
		r.Image.Layers[n].SHA256 = sums[r.Image.Layers[n].Path]
	}
	r.Image.Digest = r.Image.digestFiles(sums)
	if err := d.writeRecord(r); err != nil {
		return Image{}, explainWrite(err, d.store.dir)
	}
	made := r.Image.atPlace(filepath.Join(d.store.dir, d.name), d.name, sums)
	if first != nil {
		if err := first(made); err != nil {
			return Image{}, err
		}
	}
	return made, d.giveName()
}

// sealFile makes a file durable and read-only, and computes its digest. Machines run under other user ids, so everybody
// who reaches the file may read it; the directory of the store lets only this user reach it.
func sealFile(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|safefile.NoFollow|safefile.NoWait, 0)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	if err := errors.Join(f.Chmod(0o444), f.Sync()); err != nil {
		return file{}, err
	}
	id, err := identifyFile(f)
	if err != nil {
		return file{}, err
	}
	sum, err := digestRested(f, id)
	return file{sum, id}, err
}

func (d *Draft) writeRecord(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	known := r.Image.filePaths()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // intermediate files
		if !slices.Contains(known, e.Name()) {
			if err := os.RemoveAll(d.Path(e.Name())); err != nil {
				return err
			}
		}
	}
	if err := safefile.Create(d.Path(recordFile), append(text, '\n'), 0o600); err != nil {
		return err
	}
	return d.lock.Sync()
}

// giveName renames the draft, which is what makes it an image.
func (d *Draft) giveName() error {
	unlock, err := d.store.lockStore()
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.store.checkFree(d.name); err != nil {
		return err
	}
	if err := os.Rename(d.dir, filepath.Join(d.store.dir, d.name)); err != nil {
		return explainWrite(err, d.store.dir)
	}
	err = d.lock.Close()
	d.lock = nil
	return err
}

// explainWrite adds the cure to an error of the file system.
func explainWrite(err error, dir string) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, errQuota):
		return bailey.Unavailable.Wrap(err, "the disk is full: cannot write in "+dir,
			"free space, or raise the quota, of the file system of "+dir)
	case errors.Is(err, fs.ErrPermission):
		return bailey.Unavailable.Wrap(err, "cannot write in "+dir, "use a directory that belongs to this user")
	}
	return err
}
