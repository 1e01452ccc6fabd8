package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// Command is a command for a host.
type Command struct {
	Line           string
	Stdin          io.Reader // nil: empty
	Stdout, Stderr io.Writer
	Output         int64         // the largest number of bytes on both streams together; 0 means 16 MiB
	Timeout        time.Duration // 0 means ten minutes
}

const (
	defaultOutput  = 16 << 20
	defaultTimeout = 10 * time.Minute
	// endGrace is the time for a command to end after its channel was closed; then the connection is closed.
	endGrace = 2 * time.Second
)

// Result is the end of a command.
type Result struct {
	Sent bool // the host may have received the command
	Code int  // the exit code, or -1 if the host did not report one
	// Login is the text of the login of a connection of a pool.
	Login string
}

var errOutput = errors.New("too much output")

// Run runs a command once. If the context ends, the channel is closed, which ends the process group of the command on a
// host with the read-only shell. After the command was sent, no failure leads to a second attempt.
func (c *Client) Run(ctx context.Context, cmd Command) (Result, error) {
	timeout, output := cmd.Timeout, cmd.Output
	if timeout == 0 {
		timeout = defaultTimeout
	}
	if output == 0 {
		output = defaultOutput
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, bailey.ToolFailed.Errorf("run a shorter command",
		"the command ran longer than %v and was ended", timeout))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	session, err := c.newSession(ctx)
	if err != nil {
		return Result{Code: -1}, err
	}
	defer session.Close()
	left := &atomic.Int64{}
	left.Store(output)
	mu := &sync.Mutex{}
	session.Stdin = cmd.Stdin
	session.Stdout = &boundedWriter{cmd.Stdout, mu, left, end}
	session.Stderr = &boundedWriter{cmd.Stderr, mu, left, end}
	if err := session.Start(cmd.Line); err != nil {
		return Result{Sent: true, Code: -1}, bailey.Unavailable.Wrap(err, "the host did not start the command",
			"check the account on the host with bailey source doctor")
	}
	done := make(chan error, 1)
	go func() { done <- session.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		session.Close()
		select {
		case <-done:
		case <-time.After(endGrace):
			c.Client.Close()
			<-done
		}
		if errors.Is(context.Cause(ctx), errOutput) {
			return Result{Sent: true, Code: -1}, bailey.ToolFailed.Errorf("read less, for example with tail or grep",
				"the output exceeded %d bytes, and the command was ended", output)
		}
		return Result{Sent: true, Code: -1}, context.Cause(ctx)
	}
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return Result{Sent: true}, nil
	case errors.As(err, &exit) && exit.Signal() == "":
		return Result{Sent: true, Code: exit.ExitStatus()}, nil
	case errors.As(err, &exit):
		return Result{
				Sent: true,
				Code: -1,
			}, bailey.ToolFailed.Errorf(
				"",
				"the command was ended by the signal %s",
				exit.Signal(),
			)
	case errors.Is(context.Cause(ctx), errOutput):
		return Result{Sent: true, Code: -1}, bailey.ToolFailed.Errorf("read less, for example with tail or grep",
			"the output exceeded %d bytes, and the command was ended", output)
	}
	return Result{
			Sent: true,
			Code: -1,
		}, bailey.Unavailable.Wrap(
			err,
			"the connection broke while the command ran; its result is not known",
			"the command is not run again; look at the host before you repeat it",
		)
}

// newSession opens a channel. If that takes longer than the context, the connection is closed.
func (c *Client) newSession(ctx context.Context) (*ssh.Session, error) {
	stop := context.AfterFunc(ctx, func() { c.Client.Close() })
	session, err := c.Client.NewSession()
	if !stop() {
		if err == nil {
			session.Close()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, &networkError{bailey.Unavailable.Wrap(err, "the connection to the host is broken", "try again")}
	}
	return session, nil
}

// boundedWriter passes on output until the limit that both streams share.
type boundedWriter struct {
	to   io.Writer
	mu   *sync.Mutex // the writers of a caller may be one
	left *atomic.Int64
	end  context.CancelCauseFunc
}

func (w *boundedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := int64(len(b))
	left := w.left.Add(-n)
	if left < 0 {
		n = max(0, n+left)
	}
	if w.to != nil {
		if written, err := w.to.Write(b[:n]); err != nil {
			w.end(err)
			return written, err
		}
	}
	if left < 0 {
		w.end(errOutput)
		return int(n), errOutput
	}
	return len(b), nil
}
