package jail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/jail/inside"
)

// Jail builds cages. It is safe for concurrent use.
type Jail struct {
	bailey.PlainRunner
	mask     []string // cleaned
	root     bool     // the gateway is root: cages get hostUID, places are donated
	hostUID  int
	hostGID  int
	landlock int // Landlock ABI of the kernel, 0 without Landlock
	tools    tools
	holder   enforcerFactory // enforces the cages' bounds
	times    times
	// for tests that show the use of clone attributes by removing them; otherwise nil
	weaken func(*syscall.SysProcAttr)

	warm  warmth
	memos planCache

	choosing sync.Mutex
	chosen   bool   // guarded by choosing
	lesser   string // why calls get the lesser cage; guarded by choosing until chosen
	nests    string // parent of the lesser cages' private directories

	gathering sync.Mutex // held while orphans are ended
	calls     int        // calls in the lesser cage now; guarded by gathering

	mu   sync.Mutex
	maps map[mapping]*os.File // user namespaces for idmapped binds; guarded by mu

	uids     *uids         // uids of cages, if the gateway is root
	building chan struct{} // has one entry for each cage that is being built
}

// times holds the times of a Config.
type times struct{ grace, reluctance, answer time.Duration }

// New returns a Jail. It starts nothing, and removes only files that killed gateways have left. Probe tells whether
// full cages can be built.
func New(cfg Config) (*Jail, error) {
	j := &Jail{root: os.Geteuid() == 0, hostUID: os.Geteuid(), hostGID: os.Getegid(), landlock: landlockABI(),
		maps: map[mapping]*os.File{}, uids: &uids{},
		building: make(chan struct{}, maxBuilding*runtime.NumCPU())}
	j.warm = newWarmCages(j, cfg)
	j.times = times{grace: cmp.Or(cfg.Grace, DefaultGrace), reluctance: cmp.Or(cfg.Reluctance, DefaultReluctance),
		answer: cmp.Or(cfg.Answer, DefaultAnswer)}
	j.tools.trust = trust{overflow: !isIDMapped("/proc/self/uid_map", 0)}
	tmp, err := realPath(os.TempDir())
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, os.TempDir()+" cannot be opened", "set TMPDIR to a directory")
	}
	j.nests = scratchParent(tmp)
	sweepNests(j.nests)
	if j.mask, err = cfg.cleanMasks(); err != nil {
		return nil, err
	}
	if !j.root {
		return j, nil
	}
	j.hostUID = cfg.HostUID
	if j.hostUID == 0 {
		j.hostUID = DefaultHostUID
	}
	j.hostGID = j.hostUID
	if j.hostUID < 1 || j.hostUID == overflowID || // other daemons use overflowID
		!isIDMapped("/proc/self/uid_map", j.hostUID) || !isIDMapped("/proc/self/gid_map", j.hostUID) {
		return nil, bailey.Unavailable.Errorf("add that ID to /proc/self/uid_map; or start bailey as an ordinary user, or in a user namespace that maps it",
			"no jail: layer userns: uid %d cannot be a jail's user here", j.hostUID)
	}
	if last := j.hostUID + maxUIDs - 1; (overflowID < j.hostUID || overflowID > last) &&
		isIDMapped("/proc/self/uid_map", last) && isIDMapped("/proc/self/gid_map", last) {
		j.uids.used = make([]int, maxUIDs)
	}
	return j, nil
}

// isIDMapped reports whether id exists in this process's user namespace (user_namespaces(7)).
func isIDMapped(file string, id int) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err == nil && first <= id && id-first < count {
			return true
		}
	}
	return false
}

// Plan opens, checks and lays out everything that job needs, but does not start it. The first call also finds out which
// cage this host supports. Plan keeps duplicates of the places' descriptors; the caller must close the originals.
func (j *Jail) Plan(ctx context.Context, job bailey.Job) (bailey.Run, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &run{jail: j, timeout: job.Timeout, places: map[string]*os.File{}, copied: map[string]*copied{},
		frozen: map[string]*os.File{}, files: job.FileNames}
	if r.timeout <= 0 {
		r.timeout = bailey.DefaultTimeout
	}
	var err error
	if r.lesser, err = j.chooseCage(ctx); err != nil {
		return nil, err
	}
	if err := r.planJob(job); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Probe returns nil if this host can build a full cage. It builds one without a tool, in about 3 ms.
func (j *Jail) Probe(ctx context.Context) error {
	r, err := j.emptyRun()
	if err == nil {
		_, err = r.runInCage(ctx, nil, bailey.Streams{})
	}
	return err
}

// emptyRun returns the run of a cage without a tool.
func (j *Jail) emptyRun() (*run, error) {
	l := newLayout()
	l.addRootSymlinks()
	if err := l.addDevices(); err != nil {
		return nil, err
	}
	r := &run{jail: j, plan: composePlan(l, j.hostInfo(), bailey.Limits{}, homeDir), timeout: probeTime}
	r.plan.bounds = j.holder.boundsFor(bailey.Limits{})
	r.plan.addStep("", inside.Done, nil)
	return r, nil
}

// Installed reports whether command names a program on this machine.
func (*Jail) Installed(command string) bool {
	path, err := lookUpCommand(command, searchPath)
	if err == nil {
		_, err = os.Stat(path)
	}
	return err == nil
}

// Close releases the resources that the Jail keeps between calls. All runs must have ended.
func (j *Jail) Close() error {
	j.warm.close()
	j.tools.copies.removeAll()
	j.holder.removeCgroups()
	j.mu.Lock()
	defer j.mu.Unlock()
	var errs []error
	for _, f := range j.maps {
		errs = append(errs, f.Close())
	}
	clear(j.maps)
	return errors.Join(errs...)
}
