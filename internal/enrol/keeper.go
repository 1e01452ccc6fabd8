package enrol

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/fleet/pipe"
)

// Keeper keeps the connection of a program while it is enrolled. It notices a new enrolment, and the end of one, within
// seconds. Everything but Handlers and Receipts must be set.
type Keeper struct {
	Dir      Dir
	Register func(ctx context.Context) (fleet.Register, error)
	Handlers fleet.Handlers
	// Receipts returns the source of receipts for a new enrolment.
	Receipts func() fleet.Receiptsource
	Log      *slog.Logger
	// Begun is called before the first connection of an enrolment, also after each start; nothing connects if it fails.
	// It may be nil.
	Begun func(ctx context.Context, e Enrolment) error
	// Opened is called when events of an enrolment are kept from now on, to report what was there before. It may be nil.
	Opened func()
	// Start connects; it is [pipe.Start] with the program beside this one if it is nil.
	Start func(ctx context.Context, t pipe.Target) (fleet.Stream, error)

	mu    sync.Mutex
	queue *fleet.Queue // nil if the program is not enrolled
}

// Report keeps an event for the control plane. Without an enrolment it does nothing.
func (k *Keeper) Report(kind string, v any) error {
	k.mu.Lock()
	q := k.queue
	k.mu.Unlock()
	if q == nil {
		return nil
	}
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return q.Append(kind, body)
}

// Enrolled reports whether events are kept for a control plane.
func (k *Keeper) Enrolled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.queue != nil
}

// look is how often the file of the enrolment is looked at.
const look = 2 * time.Second

// Run keeps the connection until ctx ends. It connects to nothing while the program is not enrolled. Faults are logged:
// the program works without its control plane.
func (k *Keeper) Run(ctx context.Context) error {
	for last := ""; ctx.Err() == nil; {
		now := k.stampOf()
		if now != "" && now != last {
			if err := k.runEnrolled(ctx, now); err != nil {
				k.Log.Error("the enrolment at the control plane cannot be used", "error", err, "hint", bailey.HintOf(err))
			}
		}
		last = now
		if k.stampOf() == "" {
			k.sweepOthers("")
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
	return nil
}

// stamp identifies the version of the enrolment's file, or is "".
func (k *Keeper) stampOf() string {
	info, err := os.Lstat(k.Dir.fileOf(enrolmentName))
	if err != nil {
		return ""
	}
	return info.ModTime().String()
}

// runEnrolled keeps the connection until the file changes.
func (k *Keeper) runEnrolled(ctx context.Context, stamp string) error {
	e, err := k.Dir.Read()
	if err != nil || e == nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.Begun != nil {
		if err := k.Begun(ctx, *e); err != nil {
			return err
		}
	}
	k.sweepOthers(e.Host)
	dir := k.Dir.fileOf(e.Host)
	q, err := fleet.OpenQueue(filepath.Join(dir, "events"))
	if err != nil {
		return err
	}
	defer q.Close()
	commands, err := fleet.OpenCommands(dir, nil)
	if err != nil {
		return err
	}
	defer commands.Close()
	c := &fleet.Client{Register: k.Register, Handlers: k.Handlers, Queue: q, Commands: commands, Log: k.Log,
		Dial: func(ctx context.Context) (fleet.Stream, error) { return k.startLink(ctx, e.Target) }}
	if k.Receipts != nil {
		c.Receipts = k.Receipts()
	}
	k.setQueue(q)
	defer k.setQueue(nil)
	if k.Opened != nil {
		k.Opened()
	}
	var work sync.WaitGroup
	work.Go(func() { c.Run(ctx) })
	k.followState(ctx, c, q, stamp)
	cancel()
	work.Wait()
	return nil
}

func (k *Keeper) setQueue(q *fleet.Queue) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = q
}

// follow writes the state of the connection until the enrolment changes or ctx ends.
func (k *Keeper) followState(ctx context.Context, c *fleet.Client, q *fleet.Queue, stamp string) {
	var last Status
	for k.stampOf() == stamp {
		waiting, _ := q.Waiting()
		now := Status{State: c.State(), Waiting: waiting, PID: os.Getpid(), Updated: time.Now().UTC()}
		if last.State != now.State || last.Waiting != waiting || now.Updated.Sub(last.Updated) >= fleet.HeartbeatEvery {
			last = now
			if err := k.Dir.writeFile(statusName, now); err != nil {
				k.Log.Warn("the state of the connection is not written", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(look / 4):
		}
	}
}

func (k *Keeper) startLink(ctx context.Context, t pipe.Target) (fleet.Stream, error) {
	if k.Start != nil {
		return k.Start(ctx, t)
	}
	program, err := pipe.Find()
	if err != nil {
		return nil, err
	}
	return pipe.Start(ctx, program, t)
}

// sweep removes what is left of other enrolments.
func (k *Keeper) sweepOthers(host string) {
	all, err := os.ReadDir(string(k.Dir))
	if err != nil {
		return
	}
	for _, f := range all {
		if f.Name() != host && (f.IsDir() && strings.HasPrefix(f.Name(), "h-") || host == "" && f.Name() == statusName) {
			if err := os.RemoveAll(k.Dir.fileOf(f.Name())); err != nil {
				k.Log.Warn("cannot remove what is left of an enrolment", "error", err)
			}
		}
	}
}
