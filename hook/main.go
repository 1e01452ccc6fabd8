package hook

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"bailey"
)

// Main is the main function of a hook: it reads one frame from stdin, calls f, writes the answer to stdout and ends the
// process. An error or panic of f is a failure: it is written to stderr, and the host acts according to onFailure. ctx
// ends when the host wants the hook to stop; a second later the host kills it.
func Main(f func(ctx context.Context, e Event) (Answer, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(runHook(ctx, os.Stdin, os.Stdout, os.Stderr, f))
}

// runHook returns the exit code. Go ends a panicking program with code 2, which would block here, so answer must recover
// the panic.
func runHook(ctx context.Context, in io.Reader, out, log io.Writer,
	f func(context.Context, Event) (Answer, error)) (exit int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(log, "panic: %v\n", r)
			exit = exitFailure
		}
	}()
	frame, exit, err := answerFrame(ctx, in, f)
	if err == nil {
		_, err = out.Write(frame)
	}
	if err != nil {
		fmt.Fprintln(log, err)
		if hint := bailey.HintOf(err); hint != "" {
			fmt.Fprintln(log, hint)
		}
		return exitFailure
	}
	return exit
}

func answerFrame(ctx context.Context, in io.Reader,
	f func(context.Context, Event) (Answer, error)) (frame []byte, exit int, err error) {
	b, err := io.ReadAll(io.LimitReader(in, MaxFrame+1))
	if err != nil {
		return nil, exitFailure, err
	}
	e, err := Decode(b)
	if err != nil {
		return nil, exitFailure, err
	}
	a, err := f(ctx, e)
	if err != nil {
		return nil, exitFailure, err
	}
	return EncodeAnswer(e, a)
}
