package hook

import (
	"fmt"
	"strings"

	"bailey"
)

// OnFailure says how an event continues if its hook failed. The zero value is the default of the event: block for
// PreToolUse, pass for all others.
type OnFailure string

const (
	Block OnFailure = "block" // the event must not continue
	Pass  OnFailure = "pass"  // the event continues unchanged, with a warning
)

// canPass returns false for an unknown value.
func (f OnFailure) canPass(n Name) bool { return f == Pass || f == "" && n != OnPreToolUse }

// Effect is the effect of hooks on an event. The zero value blocks.
type Effect uint8

const (
	Blocked Effect = iota // it must not continue
	Kept                  // it continues unchanged
	Changed               // it continues as the hook changed it
	Failed                // a soft failure: it continues unchanged, and a person is warned
)

func (e Effect) String() string {
	switch e {
	case Kept:
		return "kept"
	case Changed:
		return "changed"
	case Failed:
		return "failed"
	}
	return "blocked"
}

// Outcome is a host's result of running a hook. Message and Reason may contain text of the hook: the host must escape
// control characters and redact them before it shows them.
type Outcome struct {
	Effect  Effect
	Event   Event  // continues, and goes to the next hook of the chain; nil if blocked
	Message string // for the person, from the hook
	Reason  string // for Blocked and Failed: what happened
	Hint    string // what to do now
}

// Ran is the result of starting a hook.
type Ran struct {
	Stdout, Stderr []byte // each the first MaxFrame bytes at most
	Exit           int    // as in a shell
	Truncated      bool   // stdout was longer
	TimedOut       bool   // it exceeded its time limit and was ended
	Err            error  // it could not be asked: for example no frame, no program, no cage
}

// The exit codes of the protocol. Any other code is a failure.
const (
	exitOK      = 0
	exitFailure = 1 // exit code of Main
	exitBlock   = 2
)

// Interpret returns the outcome of an event after a hook ran. If any part of an answer is invalid, the whole answer is
// ignored.
func Interpret(e Event, r Ran, f OnFailure) Outcome {
	switch name := e.Name(); {
	case r.Err != nil:
		return failureOutcome(e, f, "cannot run it: "+r.Err.Error(), bailey.HintOf(r.Err))
	case r.TimedOut:
		return failureOutcome(e, f, "it timed out", "make it faster, or raise timeout_ms")
	case r.Exit == exitBlock && name.Blocks():
		return blockedOutcome(e, r)
	case r.Exit == exitBlock:
		return failureOutcome(e, f,
			fmt.Sprintf("it ended with code 2, which cannot block %s%s", name,
				lastStderrLine(r.Stderr)), "use exit code 2 only for UserPromptSubmit and PreToolUse")
	case r.Exit != exitOK:
		return failureOutcome(e, f, fmt.Sprintf("it ended with code %d%s", r.Exit, lastStderrLine(r.Stderr)),
			"run it by hand with the frame on standard input")
	case r.Truncated || len(r.Stdout) > MaxFrame:
		return failureOutcome(e, f, fmt.Sprintf("its answer has more than %d bytes", MaxFrame),
			"answer less; write other output to stderr")
	}
	a, err := DecodeAnswer(e, r.Stdout)
	switch {
	case err != nil:
		return failureOutcome(e, f, err.Error(), bailey.HintOf(err))
	case a.Block && e.Name().Blocks():
		return Outcome{Effect: Blocked, Message: a.Message, Reason: blockReason(a.Message), Hint: byHook}
	case a.Block:
		return failureOutcome(e, f, fmt.Sprintf("it answered \"continue\": false, which cannot block %s", e.Name()),
			"only UserPromptSubmit and PreToolUse can be blocked")
	case a.Updated == nil:
		return Outcome{Effect: Kept, Event: e, Message: a.Message}
	}
	changed, _ := e.withUpdate(a.Updated) // DecodeAnswer accepted only a value that fits
	return Outcome{Effect: Changed, Event: changed, Message: a.Message}
}

const byHook = "change the request or the hook"

func blockReason(message string) string {
	if message == "" {
		return "the hook blocked it and gave no reason"
	}
	return message
}

// blockedOutcome takes the reason from the answer, or else from stderr. It blocks even if the answer cannot be parsed.
func blockedOutcome(e Event, r Ran) Outcome {
	o := Outcome{Effect: Blocked, Hint: byHook}
	if a, err := DecodeAnswer(e, r.Stdout); err == nil && !r.Truncated {
		o.Message = a.Message
	}
	if o.Message == "" {
		o.Message = firstWords(r.Stderr)
	}
	o.Reason = blockReason(o.Message)
	return o
}

// failureOutcome is soft if f lets the event pass.
func failureOutcome(e Event, f OnFailure, what, hint string) Outcome {
	o := Outcome{Effect: Failed, Event: e, Reason: "the hook failed: " + what, Hint: hint}
	if !f.canPass(e.Name()) {
		o.Effect, o.Event = Blocked, nil
	}
	return o
}

// maxSaid limits the text that is taken from stderr, in bytes.
const maxSaid = 1 << 10

func firstWords(stderr []byte) string {
	s := stderr[:min(len(stderr), maxSaid)]
	return strings.TrimSpace(strings.ToValidUTF8(string(s), "\ufffd"))
}

// lastStderrLine returns the last line of stderr, which mostly contains the reason.
func lastStderrLine(stderr []byte) string {
	s := strings.TrimSpace(string(stderr[max(0, len(stderr)-maxSaid):]))
	if s = strings.ToValidUTF8(s[strings.LastIndexByte(s, '\n')+1:], "\ufffd"); s == "" {
		return ""
	}
	return ": " + s
}

// Output keeps the first MaxFrame bytes of a hook's stream and discards the rest, so that a hook never blocks on its
// output.
type Output struct {
	kept []byte
	more bool
}

func (o *Output) Write(p []byte) (int, error) {
	n := min(len(p), MaxFrame-len(o.kept))
	o.kept = append(o.kept, p[:n]...)
	o.more = o.more || n < len(p)
	return len(p), nil
}

// Kept returns the kept bytes, and whether there were more.
func (o *Output) Kept() (b []byte, truncated bool) { return o.kept, o.more }
