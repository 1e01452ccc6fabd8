//go:build linux

package vmhost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/vm"
)

// An Image is what machines start from. Its files do not change while Release has not been called.
type Image struct {
	Name, Digest           string
	Arch                   string // "amd64" or "arm64"
	Kernel, Initrd, Append string
	Layers                 []vm.Layer
	DiskBytes              int64
	MemoryMB               int // least memory with which it starts
	Release                func() error
}

// Config configures a Host. Of the fields without a default, only VM may be zero.
type Config struct {
	Dir    hostapi.Dir // mode 0700; it is created
	Socket string      // the default is Dir.Socket()
	// Admit, if set, says which users may connect, beside this one. Each has sandboxes of its own.
	Admit func(uid int) bool
	// FindImage returns an image whose files have their digests.
	FindImage func(name string) (Image, error)
	VM        vm.Config // Ready and Renew are set here
	Emulated  bool      // never use KVM
	Log       *slog.Logger
	Version   string
	Ready     func() // called when clients can connect

	TTL, MaxTTL time.Duration // of a sandbox; the defaults are 24 hours and 30 days
	Janitor     time.Duration // interval; the default is a minute
	Idle        time.Duration // until a host without sandboxes and connections ends; 0 is never
	WarmTime    time.Duration // until an unused warm template is removed; the default is 7 days
	BootTime    time.Duration // limit for the boot of an image; the default is 3 minutes
	GuestTime   time.Duration // limit for one answer of a guest; the default is 30 seconds

	PerOwner     int   // how many sandboxes and how many snapshots an owner may have; the default is 10
	PerUser      int   // how many of each another user may have in all, whatever names they send; twice PerOwner
	MaxCPUs      int   // of a sandbox; the default is what the host has
	MaxMemoryMB  int   // of a sandbox; the default is half of what the host has
	TotalMB      int   // memory of all sandboxes and the reserve; the default is what the host has
	ReserveMB    int   // memory that sandboxes leave free; the default is 256
	ReserveBytes int64 // disk space that they leave free; the default is 512 MiB

	step func(name string) // for tests: called before each step that could be the last one
}

// A Host owns sandboxes. mu guards the maps. A box and a template have locks of their own: mu must be locked before
// them.
type Host struct {
	Config
	vm     *vm.Host
	begin  time.Time
	images imageUses
	end    context.CancelCauseFunc // set by Run
	conns  userConns

	mu        sync.Mutex
	boxes     map[string]*box      // by id
	templates map[string]*template // by id
	warming   map[warmKey]chan struct{}
	quiet     time.Time // since when there are neither sandboxes nor connections
	claimed   int       // memory in MiB of machines that are about to start
	reason    string    // why machines are emulated
	kvm       bool      // a machine ran with KVM
}

// New returns a host. It starts nothing.
func New(c Config) (*Host, error) {
	memory, _, err := readMemory()
	if err != nil {
		return nil, err
	}
	c.Socket = cmp.Or(c.Socket, c.Dir.Socket())
	c.TTL, c.MaxTTL = cmp.Or(c.TTL, 24*time.Hour), cmp.Or(c.MaxTTL, 30*24*time.Hour)
	c.Janitor, c.WarmTime = cmp.Or(c.Janitor, time.Minute), cmp.Or(c.WarmTime, 7*24*time.Hour)
	c.BootTime, c.GuestTime = cmp.Or(c.BootTime, 3*time.Minute), cmp.Or(c.GuestTime, 30*time.Second)
	c.PerOwner, c.MaxCPUs = cmp.Or(c.PerOwner, 10), cmp.Or(c.MaxCPUs, runtime.NumCPU())
	c.PerUser = cmp.Or(c.PerUser, 2*c.PerOwner)
	c.MaxMemoryMB, c.ReserveMB = cmp.Or(c.MaxMemoryMB, memory/2), cmp.Or(c.ReserveMB, 256)
	c.TotalMB, c.ReserveBytes = cmp.Or(c.TotalMB, memory), cmp.Or(c.ReserveBytes, 512<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.step == nil {
		c.step = func(string) {}
	}
	c.VM.Ready = greetGuest
	h := &Host{Config: c, begin: time.Now(), boxes: map[string]*box{}, templates: map[string]*template{},
		warming: map[warmKey]chan struct{}{}, quiet: time.Now()}
	h.images.find = c.FindImage
	h.vm, err = vm.New(c.VM)
	return h, err
}

// greetGuest waits until the agent of a guest answers.
func greetGuest(ctx context.Context, m *vm.Machine) error {
	conn, err := m.Channel(ctx)
	if err != nil {
		return err
	}
	s, err := guestclient.Dial(ctx, conn, guestclient.Config{HelloTime: time.Hour}) // ctx ends earlier
	if err != nil {
		return err
	}
	return s.Close()
}

func (h *Host) boxDir(id string) string      { return filepath.Join(string(h.Dir), "sandboxes", id) }
func (h *Host) templateDir(id string) string { return filepath.Join(string(h.Dir), "templates", id) }

// Reasons for which Run ends without a signal.
var (
	errIdle    = errors.New("there were neither sandboxes nor connections for a while")
	errStopped = errors.New("the host was told to stop")
)

// Run owns the directory, adopts its sandboxes, and serves clients until ctx ends, a client stops the host, or it is
// idle.
// Sandboxes continue to run afterwards.
func (h *Host) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h.end = cancel
	free, err := h.ownDirectory()
	if err != nil {
		return err
	}
	defer free()
	if err := h.adoptAll(ctx); err != nil {
		return err
	}
	defer h.releaseAll()
	l, err := h.listenSocket()
	if err != nil {
		return err
	}
	defer os.Remove(h.Socket)
	context.AfterFunc(ctx, func() { l.Close() })
	if h.Ready != nil {
		h.Ready()
	}
	var open sync.WaitGroup
	open.Go(func() { h.runJanitor(ctx) })
	err = h.acceptClients(ctx, l, &open)
	cancel(err)
	open.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errIdle) && !errors.Is(cause, errStopped) &&
		!errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// ownDirectory creates the directory and locks it.
func (h *Host) ownDirectory() (free func(), err error) {
	for _, dir := range []string{"", "sandboxes", "templates"} {
		if err := os.MkdirAll(filepath.Join(string(h.Dir), dir), 0o700); err != nil {
			return nil, bailey.Unavailable.Wrapf(err, "name a directory that you can write", "cannot create %s", h.Dir)
		}
	}
	if err := peer.Owned(string(h.Dir)); err != nil {
		return nil, err
	}
	free, err = localapi.LockFile(h.Dir.Lock())
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, bailey.Conflict.Wrapf(err, "use the host that runs", "another host owns %s", h.Dir)
	}
	return free, err
}

func (h *Host) listenSocket() (*peer.Listener, error) {
	if h.Admit == nil {
		return peer.Listen(h.Socket)
	}
	l, err := peer.ListenFor(h.Socket, func(uid int) bool { return uid == os.Geteuid() || h.Admit(uid) })
	if err == nil {
		l.Refused = func(uid, pid int) { h.Log.Warn("a client was refused", "uid", uid, "pid", pid) }
	}
	return l, err
}

// releaseAll gives up all machines, for the next host.
func (h *Host) releaseAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.boxes {
		b.closeSession()
		b.mu.Lock()
		m := b.machine
		b.machine = nil // so that its end is not recorded here
		b.mu.Unlock()
		if m != nil {
			m.Release()
		}
	}
	for _, t := range h.templates {
		t.unloadMemory()
	}
	h.images.releaseAll()
}

// runJanitor removes what has expired, and ends an idle host.
func (h *Host) runJanitor(ctx context.Context) {
	tick := time.NewTicker(h.Janitor)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.removeExpired(ctx)
		h.removeTemplates(ctx)
		if h.Idle > 0 && h.isIdle() {
			h.end(errIdle)
		}
	}
}

func (h *Host) removeExpired(ctx context.Context) {
	for _, b := range h.allBoxes() {
		r := b.recordNow()
		if r.State != hostapi.Destroying && (time.Now().Before(r.Expires) || r.State == hostapi.Creating) {
			continue
		}
		if err := h.destroyBox(ctx, b); err != nil && ctx.Err() == nil {
			h.Log.Error("an expired sandbox cannot be destroyed", "sandbox", r.ID, "error", err)
		} else if err == nil {
			h.Log.Info("a sandbox expired", "sandbox", r.ID, "name", r.Name)
		}
	}
}

// isIdle reports whether the host had neither sandboxes nor connections for Config.Idle.
func (h *Host) isIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.boxes) > 0 || h.conns.countAll() > 0 {
		h.quiet = time.Now()
	}
	return time.Since(h.quiet) >= h.Idle
}

// imageUses keeps images that templates and machines use, by digest, so that they are not removed.
type imageUses struct {
	find func(name string) (Image, error)
	mu   sync.Mutex
	used map[string]Image
}

// useImage returns an image by its name, and keeps it.
func (u *imageUses) useImage(name string) (Image, error) {
	i, err := u.find(name)
	if err != nil {
		return Image{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used == nil {
		u.used = map[string]Image{}
	}
	if _, ok := u.used[i.Digest]; ok {
		return i, releaseImage(i)
	}
	u.used[i.Digest] = i
	return i, nil
}

func releaseImage(i Image) error {
	if i.Release == nil {
		return nil
	}
	return i.Release()
}

// releaseExcept releases all images but those with the given digests.
func (u *imageUses) releaseExcept(digests map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for digest, i := range u.used {
		if !digests[digest] {
			releaseImage(i)
			delete(u.used, digest)
		}
	}
}

func (u *imageUses) releaseAll() { u.releaseExcept(nil) }
