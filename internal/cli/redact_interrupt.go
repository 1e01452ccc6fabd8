package cli

import (
	"context"
	"errors"
	"io"
	"syscall"

	"bailey/internal/terminal"
)

// interruptible treats the first Ctrl-C as the end of the input. So `tail -f | bailey redact`, for example, still
// prints its summary and session; without the session the output could not be restored. The next signal, or any other
// first signal, ends the stream.
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

// interrupted reports whether Ctrl-C ended ctx.
func interrupted(ctx context.Context) bool {
	var s terminal.Signal
	return errors.As(context.Cause(ctx), &s) && s.Number == syscall.SIGINT
}
