package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/vmhost"
	"bailey/internal/vmhost/process"
)

var benchOwner = hostapi.Owner{Person: "bench", Operator: true}

// slack is how much longer a clone may take than the script.
const slack = 20 * time.Millisecond

// measureSandboxes runs a host in a temporary directory.
func (b *sandboxBench) measureSandboxes(ctx context.Context) ([]Row, error) {
	if b.image == "" {
		return missingSandboxes("it needs an image: give --image NAME; bailey image list shows the images"), nil
	}
	home, err := localapi.FindHome()
	if err != nil {
		return nil, err
	}
	find, err := process.OpenImages(hostapi.ImagesOf(home))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bailey-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ready := make(chan struct{})
	c := vmhost.Config{Dir: hostapi.Dir(filepath.Join(dir, "host")), FindImage: find, Emulated: b.emulated, PerOwner: 1000,
		TotalMB: 1 << 30, // clones that share memory are measured
		Ready:   func() { close(ready) }}
	host, err := vmhost.New(c)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(running) }()
	defer func() { stop(); <-ended }()
	select {
	case <-ready:
	case err := <-ended:
		return nil, errors.Join(err, ctx.Err())
	}
	s := &sandboxRun{sandboxBench: *b, dir: c.Dir, client: &hostapi.Client{Socket: c.Dir.Socket()}, times: map[string][]time.Duration{}}
	defer s.destroyAll()
	return s.measureAll(ctx)
}

// sandboxRun is one measurement.
type sandboxRun struct {
	sandboxBench
	dir    hostapi.Dir
	client *hostapi.Client
	times  map[string][]time.Duration
}

// destroyAll leaves no machine behind.
func (s *sandboxRun) destroyAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, _ := hostapi.List.Ask(ctx, s.client, benchOwner, hostapi.None{})
	for _, box := range list {
		hostapi.Destroy.Ask(ctx, s.client, benchOwner, hostapi.Target{Sandbox: box.ID})
	}
}

func (s *sandboxRun) createOne(ctx context.Context) (id string, err error) {
	box, err := hostapi.Create.Ask(ctx, s.client, benchOwner, hostapi.CreateRequest{Image: s.image, MemoryMB: s.memory})
	if err == nil {
		err = s.runTrue(ctx, box.ID)
	}
	return box.ID, err
}

func (s *sandboxRun) destroyOne(ctx context.Context, id string) error {
	_, err := hostapi.Destroy.Ask(ctx, s.client, benchOwner, hostapi.Target{Sandbox: id})
	return err
}

// runTrue runs the smallest command.
func (s *sandboxRun) runTrue(ctx context.Context, id string) error {
	exit, err := s.client.Exec(ctx, benchOwner, hostapi.Command{Sandbox: id, Argv: []string{"/bin/true"}}, hostapi.Streams{})
	if err == nil && exit.Code != 0 {
		err = bailey.ToolFailed.Errorf("use an image with that program", "/bin/true ended with %+v", exit)
	}
	return err
}

func (s *sandboxRun) measureAll(ctx context.Context) ([]Row, error) {
	var kept string
	err := recordTime(s.times, "cold", func() (err error) { kept, err = s.createOne(ctx); return err })
	if err != nil {
		return nil, err
	}
	raw, missing := s.newRawResume(kept)
	for i := range s.n {
		if err := s.measureTurn(ctx, kept, raw, i); err != nil {
			return nil, err
		}
	}
	density, err := s.measureDensity(ctx)
	if err != nil {
		return nil, err
	}
	burst, err := s.measureBurst(ctx)
	if err != nil {
		return nil, err
	}
	return append(s.timedRows(missing), density, burst), nil
}

// measureTurn performs each operation once, the compared ones in turns.
func (s *sandboxRun) measureTurn(ctx context.Context, kept string, raw *rawResume, i int) error {
	var id string
	file := hostapi.WriteRequest{Sandbox: kept, Path: "/bench", Data: make([]byte, 1_000_000)}
	steps := []struct {
		name string
		do   func() error
	}{
		{"raw-resume", func() error { return raw.resumeOnce(ctx) }},
		{"clone", func() (err error) { id, err = s.createOne(ctx); return err }},
		{"exec", func() error { return s.runTrue(ctx, kept) }},
		{"write-1MB", func() error { _, err := hostapi.WriteFile.Ask(ctx, s.client, benchOwner, file); return err }},
		{"destroy", func() error { return s.destroyOne(ctx, id) }},
	}
	for _, step := range steps {
		if step.name == "raw-resume" && raw == nil {
			continue
		}
		if err := recordTime(s.times, step.name, step.do); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (s *sandboxRun) timedRows(missing error) []Row {
	rows := []Row{newRow("cold", s.times["cold"])}
	clone := newRow("clone", s.times["clone"])
	if missing != nil {
		rows = append(rows, Row{Name: "raw-resume", Note: missing.Error()})
	} else {
		raw := newRow("raw-resume", s.times["raw-resume"])
		rows = append(rows, raw)
		clone = clone.comparedTo("raw-resume + 20 ms", clone.P50, raw.P50+toMicros(slack), 1)
	}
	write := newRow("write-1MB", s.times["write-1MB"])
	write.Rate = 1e6 / write.P50
	return append(rows, clone, newRow("exec", s.times["exec"]), write, newRow("destroy", s.times["destroy"]))
}

// measureDensity creates sandboxes and reads how much memory only their processes have.
func (s *sandboxRun) measureDensity(ctx context.Context) (Row, error) {
	var ids []string
	for range s.idle {
		id, err := s.createOne(ctx)
		if err != nil {
			return Row{}, err
		}
		ids = append(ids, id)
	}
	total := 0
	for _, id := range ids {
		pid, err := processOf(s.machineOf(id))
		if err != nil {
			return Row{}, err
		}
		kib, err := privateMemory(pid)
		if err != nil {
			return Row{}, err
		}
		total += kib
	}
	for _, id := range ids {
		if err := s.destroyOne(ctx, id); err != nil {
			return Row{}, err
		}
	}
	return Row{Name: "density", N: len(ids), Facts: map[string]float64{"mib_each": float64(total) / 1024 / float64(len(ids))}}, nil
}

// machineOf returns the directory of the machine of a new sandbox.
func (s *sandboxRun) machineOf(id string) string {
	return filepath.Join(string(s.dir), "sandboxes", id, "machine-1")
}

// privateMemory returns the KiB of memory that only this process has (proc_pid_smaps(5)).
func privateMemory(pid int) (kib int, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		var n int
		if _, err := fmt.Sscanf(value, "%d kB", &n); err == nil && strings.HasPrefix(name, "Private_") {
			kib += n
		}
	}
	return kib, lines.Err()
}

// measureBurst creates sandboxes at once. Together they may take 1.2 times as long as one after the other on all processors.
func (s *sandboxRun) measureBurst(ctx context.Context) (Row, error) {
	begin := time.Now()
	g, within := errgroup.WithContext(ctx)
	for range s.burst {
		g.Go(func() error { _, err := s.createOne(within); return err })
	}
	if err := g.Wait(); err != nil {
		return Row{}, err
	}
	r := newRow("burst", []time.Duration{time.Since(begin)})
	clone := newRow("clone", s.times["clone"])
	r = r.comparedTo("clone × burst ÷ cores", r.P50, clone.P50*float64(s.burst)/float64(min(runtime.NumCPU(), s.burst)), 1.2)
	r.N = s.burst
	return r, nil
}
