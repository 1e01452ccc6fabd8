package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"bailey/internal/terminal"
)

// interruptible makes the first Ctrl-C the end of the input, so that a log that is followed still comes to its summary
// and its session: what came out could not be given back otherwise. The next signal ends the stream, and so does every other
// that comes first.
func interruptible(ctx context.Context, in io.Reader) (context.Context, io.Reader, func()) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
	}()
	undo := context.AfterFunc(ctx, func() {
		if !interrupted(ctx) {
			cancel(context.Cause(ctx))
			return
		}
		next, _ := terminal.UntilSignal(inner, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		context.AfterFunc(next, func() { cancel(context.Cause(next)) })
		w.Close()
	})
	return inner, r, func() { undo(); cancel(nil) }
}

// interrupted holds when Ctrl-C ended ctx.
func interrupted(ctx context.Context) bool {
	var s terminal.Signal
	return errors.As(context.Cause(ctx), &s) && s.Number == syscall.SIGINT
}
