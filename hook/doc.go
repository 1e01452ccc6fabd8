// Package hook is the protocol between Bailey and other people's programs that it asks at certain events: both sides of it,
// and hooks.json, which names the programs. It is pure: [Main] is all an author in Go needs, [Encode] and [Interpret] all
// a host needs. This comment is the specification.
//
// A hook is started anew for every event. It gets one frame on stdin, which ends with the end of the stream, and it answers with
// one on stdout. A frame is one JSON object (RFC 8259) in UTF-8, with nothing but white space before and after it, at most
// [MaxFrame] bytes in all, with at most 65536 values, nested at most 256 deep, with no key twice in an object. Keys are compared as
// they are, case included.
// What is on stderr is for people; of either stream the host keeps 1 MiB and reads on.
//
// # The frame of an event
//
//	{"hook_event_name":"PreToolUse","session_id":"s-1","cwd":"/src","toolName":"git.show","toolInput":{"rev":"HEAD"}}
//
// Every frame has the first three keys. A hook ignores keys that it does not know, since a later host may write more.
//
//	event                    its keys, beyond the three                    may change
//	UserPromptSubmit         prompt (string)                               updatedInput: the prompt, a string
//	AssistantMessageRender   content (string)                              updatedOutput: the content, a string
//	PreToolUse               toolName (string), toolInput (object)         updatedInput: the input, an object
//	PostToolUse              the same, toolResult (any), isError (bool)    updatedOutput: the result, anything but null
//	SessionStart             none                                          nothing
//	SessionEnd               none                                          nothing
//
// A host writes a frame on one line, its newline included. What is to stand in it is redacted before. Bytes that are not UTF-8 stand
// in it as U+FFFD. A hook need not read its frame.
//
// # The answer
//
//	{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"rev":"main"}}}
//
// All keys may be left out, and so may the whole frame: then nothing is changed.
//
//	continue             bool     false says the same as exit code 2
//	systemMessage        string   for the person; where something is blocked, the reason
//	hookSpecificOutput   object   the following
//	  hookEventName      string   the event that is answered; another one than was asked about is an error
//	  updatedInput       see above; what is not given stays as it is
//	  updatedOutput
//
// No key is null. A key that is not listed is an error, and so is updatedOutput where updatedInput belongs: it may have been meant to take
// something out or to stop something. With an error nothing of the answer is used.
//
// # Exit codes
//
//	0       the answer counts
//	2       blocks UserPromptSubmit and PreToolUse; elsewhere it is a soft failure
//	other   a soft failure, whatever is on stdout
//
// Where it blocks, the reason is systemMessage, or else the first KiB of stderr; an answer that cannot be read blocks no less.
//
// A soft failure is also: no start, no end within the hook's time, more than 1 MiB on stdout, an error in the answer, and a frame that
// the host cannot make because it would have more than 1 MiB. Nothing is changed then, and somebody is warned, if onFailure is "pass";
// if it is "block", the event does not go on. It is "block" for PreToolUse and "pass" elsewhere, unless hooks.json says otherwise.
//
// A hook whose time is up gets SIGTERM, and SIGKILL a second later. Whatever it wrote is not looked at.
//
// Several hooks at one event are a chain: in the order of hooks.json each is asked about what the one before it left. The first that
// blocks ends it.
//
// # hooks.json
//
//	{"hooks": {
//	  "PreToolUse": [{
//	    "command": "~/hooks/check --strict",
//	    "timeout_ms": 2000,
//	    "env": ["LANG"],
//	    "matcher": "git.*",
//	    "filesystem": {"read": ["~/notes"], "write": ["/srv/hook"]},
//	    "network": {"allow": ["api.example.com:443"]},
//	    "onFailure": "block"
//	  }],
//	  "SessionEnd": [{"argv": ["notify", "a session ended"], "sandbox": false}]
//	}}
//
// It is a frame in size and form, and strict: any other key is an error with line and column.
//
//	command      split on white space, with no shell: quotes stand for themselves, a leading ~/ of a word is the home directory
//	argv         the words as they are; a hook has one of the two
//	timeout_ms   1 to 600000; 10000
//	env          names of variables that it gets; none of BAILEY_, none that every hook has, none of [bailey.Loads]
//	sandbox      false: it runs without a cage; true
//	matcher      at tools' events: a glob on toolName, of the whole name, * any text and ? any character; every tool
//	filesystem   read, write: absolute paths, or ~/; beyond what every hook has
//	network      allow: host:port, host in lower case, exact or with a leading *.; none
//	onFailure    block or pass; "block" at SessionEnd is an error
//
// The program is an absolute path or a bare name, looked for in PATH. A program with a path may read the directory it is in; one
// without has no such folder.
//
// testdata/vectors.json says of many frames, answers and files what each side has to make of them.
package hook
