package hook

import (
	"fmt"
	"strings"

	"bailey"
)

// OnFailure says what becomes of an event whose hook failed. Its zero value is the event's own: block for PreToolUse, pass
// elsewhere.
type OnFailure string

const (
	Block OnFailure = "block" // the event does not go on
	Pass  OnFailure = "pass"  // it goes on as it was, with a warning
)

// passes is false for whatever is not known.
func (f OnFailure) passes(n Name) bool { return f == Pass || f == "" && n != OnPreToolUse }

// Effect is what an event comes to. Its zero value blocks.
type Effect uint8

const (
	Blocked Effect = iota // it does not go on
	Kept                  // it goes on as it was
	Changed               // it goes on as the hook has it
	Failed                // a soft failure: it goes on as it was, and somebody is warned
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

// Outcome is what a host makes of a hook's run. Message and Reason may hold what the hook wrote: a host escapes control
// characters before it shows them, and redacts them.
type Outcome struct {
	Effect  Effect
	Event   Event  // what goes on, and what the next hook of the chain is asked about; nil where it is blocked
	Message string // for the person, from the hook
	Reason  string // of Blocked and Failed: what happened
	Hint    string // what to do now
}

// Ran is what came of a hook that was asked.
type Ran struct {
	Stdout, Stderr []byte // at most MaxFrame bytes are kept of each
	Exit           int    // as a shell would say it
	Truncated      bool   // there was more on stdout
	TimedOut       bool   // its time was up, and it was ended
	Err            error  // it could not be asked: no frame, no program, no cage
}

// The exit codes of the protocol. Any other is a failure.
const (
	exitOK      = 0
	exitFailure = 1 // what Main says
	exitBlock   = 2
)

// Interpret says what becomes of an event after a hook ran. Whatever is wrong with an answer, nothing of it is used.
func Interpret(e Event, r Ran, f OnFailure) Outcome {
	switch name := e.Name(); {
	case r.Err != nil:
		return failure(e, f, "it could not be run: "+r.Err.Error(), bailey.HintOf(r.Err))
	case r.TimedOut:
		return failure(e, f, "its time was up", "make it faster, or raise timeout_ms")
	case r.Exit == exitBlock && name.Blocks():
		return blocked(e, r)
	case r.Exit == exitBlock:
		return failure(e, f, fmt.Sprintf("it ended with code 2, which cannot block %s%s", name, said(r.Stderr)), "code 2 is for UserPromptSubmit and PreToolUse")
	case r.Exit != exitOK:
		return failure(e, f, fmt.Sprintf("it ended with code %d%s", r.Exit, said(r.Stderr)), "run it by hand with the frame on stdin")
	case r.Truncated || len(r.Stdout) > MaxFrame:
		return failure(e, f, fmt.Sprintf("its answer has more than %d bytes", MaxFrame), "answer less; what is not the answer goes to stderr")
	}
	a, err := DecodeAnswer(e, r.Stdout)
	switch {
	case err != nil:
		return failure(e, f, err.Error(), bailey.HintOf(err))
	case a.Block && e.Name().Blocks():
		return Outcome{Effect: Blocked, Message: a.Message, Reason: reason(a.Message), Hint: byHook}
	case a.Block:
		return failure(e, f, fmt.Sprintf("it said \"continue\": false, which cannot block %s", e.Name()), "only UserPromptSubmit and PreToolUse can be blocked")
	case a.Updated == nil:
		return Outcome{Effect: Kept, Event: e, Message: a.Message}
	}
	changed, _ := e.with(a.Updated) // DecodeAnswer took nothing that does not fit
	return Outcome{Effect: Changed, Event: changed, Message: a.Message}
}

const byHook = "change what was asked for, or the hook"

func reason(message string) string {
	if message == "" {
		return "the hook blocked it and gave no reason"
	}
	return message
}

// blocked takes the reason from the answer, or else from stderr. An answer that cannot be read blocks no less.
func blocked(e Event, r Ran) Outcome {
	o := Outcome{Effect: Blocked, Hint: byHook}
	if a, err := DecodeAnswer(e, r.Stdout); err == nil && !r.Truncated {
		o.Message = a.Message
	}
	if o.Message == "" {
		o.Message = firstWords(r.Stderr)
	}
	o.Reason = reason(o.Message)
	return o
}

// failure is soft where f lets the event pass.
func failure(e Event, f OnFailure, what, hint string) Outcome {
	o := Outcome{Effect: Failed, Event: e, Reason: "the hook failed: " + what, Hint: hint}
	if !f.passes(e.Name()) {
		o.Effect, o.Event = Blocked, nil
	}
	return o
}

// maxSaid bounds what is taken of stderr, in bytes.
const maxSaid = 1 << 10

func firstWords(stderr []byte) string {
	s := stderr[:min(len(stderr), maxSaid)]
	return strings.TrimSpace(strings.ToValidUTF8(string(s), "\ufffd"))
}

// said is the last line of stderr, where the reason mostly stands.
func said(stderr []byte) string {
	s := strings.TrimSpace(string(stderr[max(0, len(stderr)-maxSaid):]))
	if s = strings.ToValidUTF8(s[strings.LastIndexByte(s, '\n')+1:], "\ufffd"); s == "" {
		return ""
	}
	return ": " + s
}

// Output keeps the first MaxFrame bytes of a hook's stream and takes the rest, so that no hook waits for its reader.
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

// Kept is what was kept, and whether there was more.
func (o *Output) Kept() (b []byte, truncated bool) { return o.kept, o.more }
