package hook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"bailey"
)

// Answer is a hook's answer to an event. The zero value lets the event continue unchanged.
type Answer struct {
	Block   bool   // the prompt or the call must not continue; for other events a soft failure
	Message string // for the person: why it is blocked, or a notice
	// Updated replaces the prompt or the content (a string), the tool's input (map[string]any) or its result (anything
	// but nil). If it is nil, nothing is replaced.
	Updated any
}

// updateKey returns the key for the changed value in an answer.
func (n Name) updateKey() string {
	switch n {
	case OnUserPromptSubmit, OnPreToolUse:
		return "updatedInput"
	case OnAssistantMessageRender, OnPostToolUse:
		return "updatedOutput"
	}
	return ""
}

// EncodeAnswer returns the output of a hook on stdout in answer to an event, and its exit code.
func EncodeAnswer(e Event, a Answer) (frame []byte, exit int, err error) {
	type specific struct {
		Name   Name `json:"hookEventName"`
		Input  any  `json:"updatedInput,omitzero"`
		Output any  `json:"updatedOutput,omitzero"`
	}
	var w struct {
		Message  string    `json:"systemMessage,omitempty"`
		Specific *specific `json:"hookSpecificOutput,omitempty"`
	}
	w.Message = a.Message
	switch _, fits := e.withUpdate(a.Updated); {
	case a.Block:
		exit = exitBlock
	case a.Updated == nil:
	case !fits:
		return nil, 0, bailey.Invalid.Errorf(updateHint(e.Name()),
			"an answer to %s cannot change %T", e.Name(), a.Updated)
	case e.Name().updateKey() == "updatedInput":
		w.Specific = &specific{Name: e.Name(), Input: a.Updated}
	default:
		w.Specific = &specific{Name: e.Name(), Output: a.Updated}
	}
	frame, err = encodeFrame(fmt.Sprintf("the answer to %s", e.Name()), w)
	return frame, exit, err
}

// DecodeAnswer parses the output of a hook on stdout in answer to an event. It returns an error if a key is unknown,
// because that key may have been meant to change or stop something. If there is only white space, it returns the zero
// Answer.
func DecodeAnswer(e Event, stdout []byte) (a Answer, err error) {
	if len(stdout) <= MaxFrame && len(bytes.Trim(stdout, " \t\r\n")) == 0 {
		return a, nil
	}
	t, root, err := parseObject("the answer", stdout)
	if err != nil {
		return Answer{}, err
	}
	goOn := true
	err = t.readObject(root, "an answer", keyReaders{
		"continue":           storeInto(t, &goOn, "a boolean"),
		"systemMessage":      storeInto(t, &a.Message, "a string"),
		"hookSpecificOutput": func(n node) error { return t.parseSpecificOutput(n, e, &a) },
	}, false)
	if err != nil {
		return Answer{}, err
	}
	a.Block = !goOn
	return a, nil
}

// parseSpecificOutput parses hookSpecificOutput, which must be for this event.
func (t *jsonParser) parseSpecificOutput(n node, e Event, a *Answer) error {
	var name string
	update := func(n node) error {
		if key := e.Name().updateKey(); n.name != key {
			return t.errorAt(n.keyAt, fmt.Sprintf("%s is not allowed in an answer to %s", n.name, e.Name()), updateHint(e.Name()))
		}
		v := n.goValue()
		if _, fits := e.withUpdate(v); !fits {
			return t.errorAt(n.at, fmt.Sprintf("%s is %s, which does not fit %s", n.name, n.kindName(), e.Name()),
				updateHint(e.Name()))
		}
		a.Updated = v
		return nil
	}
	err := t.readObject(n, "hookSpecificOutput", keyReaders{
		"hookEventName": storeInto(t, &name, "a string"),
		"updatedInput":  update,
		"updatedOutput": update,
	}, false)
	if err == nil && n.hasMember("hookEventName") && name != string(e.Name()) {
		return t.errorAt(n.at, fmt.Sprintf("this is an answer to %.64q, but the event was %s", name, e.Name()),
			"use the hook_event_name of the request")
	}
	return err
}

// updateHint says what an answer may change in an event.
func updateHint(n Name) string {
	switch n {
	case OnUserPromptSubmit:
		return "updatedInput must be the new prompt, a string"
	case OnPreToolUse:
		return "updatedInput must be the tool's new input, an object"
	case OnAssistantMessageRender:
		return "updatedOutput must be the new content, a string"
	case OnPostToolUse:
		return "updatedOutput must be the tool's new result, not null"
	}
	return fmt.Sprintf("%s has nothing to change; leave hookSpecificOutput out", n)
}

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
