// Package helper is the program bailey-helper. It runs the helpers of a broker, each in a jail of its own, and returns
// what they print. It keeps no secret and decides nothing: the broker's table names the program, its digest, and the
// places
// that it may reach. It should run as a user of its own, which is neither that of the broker nor that of a gateway.
package helper

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/broker"
	"bailey/internal/egress"
	"bailey/internal/jail"
	"bailey/internal/peer"
)

// Limits of a helper's jail.
const (
	maxMemory = 512 << 20
	maxTasks  = 64
	maxStderr = 4 << 10
	maxOpen   = 16 // helpers at the same time
)

const usage = `bailey-helper --socket PATH --uid UID

Runs the helpers of the broker with that uid, each in a jail of its own. docs/broker.md describes it.
`

// Main runs the program with the arguments of the process, and exits.
func Main() {
	if err := runProgram(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bailey-helper:", err)
		if hint := bailey.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "  →", hint)
		}
		os.Exit(1)
	}
}

func runProgram(args []string) error {
	c := Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flag.NewFlagSet("bailey-helper", flag.ContinueOnError)
	f.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	f.StringVar(&c.Socket, "socket", "", "")
	f.IntVar(&c.UID, "uid", -1, "")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil || c.Socket == "" || c.UID < 0 || f.NArg() > 0 {
		return bailey.Invalid.New("it needs --socket and --uid", "bailey-helper --help")
	}
	c.Ready = func() { c.Log.Info("serving", "socket", c.Socket, "uid", c.UID) }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return Serve(ctx, c)
}

// Config configures Serve.
type Config struct {
	Socket string
	UID    int          // of the broker
	Log    *slog.Logger // gets what helpers write to standard error
	Ready  func()       // is called when the socket exists
	World  egress.WayConfig
}

// Serve answers the broker until ctx ends.
func Serve(ctx context.Context, c Config) error {
	cages, err := jail.New(jail.Config{OnDemand: true})
	if err != nil {
		return err
	}
	defer cages.Close()
	l, err := peer.ListenFor(c.Socket, func(uid int) bool { return uid == c.UID })
	if err != nil {
		return err
	}
	l.Refused = func(uid, pid int) { c.Log.Warn("peer not admitted", "uid", uid, "pid", pid) }
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	c.Ready()
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, maxOpen)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case err != nil:
			return err
		}
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			c.answerBroker(ctx, cages, conn)
		})
	}
}

// answerBroker runs one helper.
func (c Config) answerBroker(ctx context.Context, cages *jail.Jail, conn *peer.Conn) {
	ctx, cancel := context.WithTimeout(ctx, broker.MaxHelperTime)
	defer cancel()
	if err := conn.SetDeadline(time.Now().Add(broker.MaxHelperTime + time.Second)); err != nil {
		return
	}
	exit, out, err := c.runHelper(ctx, cages, conn)
	defer clear(out)
	if err != nil {
		c.Log.Warn("refused", "err", err)
		_ = conn.WriteJSON(broker.HelperFailed, map[string]string{"kind": string(bailey.KindOf(err)),
			"message": err.Error(),
			"hint":    bailey.HintOf(err)})
		return
	}
	if conn.WriteJSON(broker.HelperDone, broker.HelperExit{Code: exit.Code}) == nil {
		_ = conn.WriteFrame(broker.HelperValue, out)
	}
}

// readValues reads the values of the files, and the input.
func readValues(conn *peer.Conn, job broker.HelperJob) (files []bailey.LentFile, input []byte, err error) {
	for i := range len(job.Files) + 1 {
		kind, value, err := conn.ReadFrameWithin(broker.MaxValue)
		if err != nil || kind != broker.HelperValue {
			return nil, nil, bailey.Invalid.Wrap(err, "the broker's message is not complete",
				"use programs of one version")
		}
		if i == len(job.Files) {
			return files, value, nil
		}
		files = append(files, bailey.LentFile{Env: job.Files[i], Value: bailey.NewSecret(string(value))})
		clear(value)
	}
	return files, input, nil
}

func (c Config) runHelper(ctx context.Context, cages *jail.Jail, conn *peer.Conn) (exit bailey.Exit, out []byte,
	err error) {
	kind, payload, err := conn.ReadFrameWithin(broker.MaxHelperJob)
	if err != nil || kind != broker.HelperAsk {
		return exit, nil, bailey.Invalid.Wrap(err, "this is not a message of a broker", "use programs of one version")
	}
	job, err := broker.ReadHelperJob(payload)
	if err != nil {
		return exit, nil, err
	}
	files, input, err := readValues(conn, job)
	if err != nil {
		return exit, nil, err
	}
	defer clear(input)
	planned, lent, err := c.planJob(job, files)
	if err != nil {
		return exit, nil, err
	}
	run, err := cages.Plan(ctx, planned)
	if err != nil {
		return exit, nil, err
	}
	defer run.Close()
	if cage := run.Cage(); cage.BinaryDigest != job.Digest {
		return exit, nil, bailey.Denied.Errorf("check why it changed, then write its new digest as sha256 into "+broker.TableName,
			"%s has the digest %s, and the table pins %s", job.Program, cage.BinaryDigest, job.Digest)
	}
	stdout, stderr := &boundedBuffer{most: broker.MaxHelperOutput}, &boundedBuffer{most: maxStderr}
	exit, err = run.Start(ctx, lent, bailey.Streams{Stdin: bytes.NewReader(input), Stdout: stdout, Stderr: stderr})
	if text := strings.ToValidUTF8(stderr.String(), "?"); text != "" {
		c.Log.Warn("a helper wrote to standard error", "program", job.Program, "text", text)
	}
	switch {
	case err != nil:
		return exit, nil, err
	case exit.TimedOut:
		return exit, nil, bailey.Unavailable.Errorf("make it faster", "%s took longer than %v", job.Program,
			broker.MaxHelperTime)
	case stdout.over:
		return exit, nil, bailey.Unavailable.Errorf("print one JSON object", "%s printed more than %d bytes",
			job.Program, stdout.most)
	}
	return exit, stdout.Bytes(), nil
}

// planJob returns the job of the jail, and the values for it.
func (c Config) planJob(job broker.HelperJob, files []bailey.LentFile) (bailey.Job, bailey.Lent, error) {
	planned := bailey.Job{Command: job.Program, Args: job.Args, Read: job.Read, FileNames: job.Files,
		Limits: bailey.Limits{MemoryBytes: maxMemory, Tasks: maxTasks}, Timeout: broker.MaxHelperTime}
	lent := bailey.Lent{Files: files}
	if len(job.Egress) == 0 {
		return planned, lent, nil
	}
	var places []bailey.Endpoint
	for _, text := range job.Egress {
		place, err := bailey.ParseEndpoint(text)
		if err != nil {
			return planned, lent, err
		}
		_, err = netip.ParseAddr(place.Host)
		place.Private, place.NoSNI = job.Private, err == nil // TLS names no addresses (RFC 6066, section 3)
		places = append(places, place)
	}
	var err error
	if planned.Network, err = egress.Plan(places); err != nil {
		return planned, lent, bailey.KindOf(err).Wrapf(err,
			"set private: true in "+broker.TableName+" for an issuer in your own network",
			"cannot reach what egress names")
	}
	world := c.World
	world.Network = planned.Network
	if world.Authorities == nil {
		if world.Authorities, err = egress.Authorities(); err != nil {
			return planned, lent, err
		}
	}
	lent.Way, err = egress.NewWay(world)
	return planned, lent, err
}

// boundedBuffer keeps the first bytes of an output.
type boundedBuffer struct {
	bytes.Buffer
	most int
	over bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if room := b.most - b.Len(); len(p) > room {
		b.over = true
		b.Buffer.Write(p[:room])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

var _ io.Writer = (*boundedBuffer)(nil)
