// Package hook is the protocol between Bailey and the third-party programs that it asks at certain events: both sides
// of it, and hooks.json, which names the programs. It is pure. A hook written in Go needs only [Main], a host only
// [Encode] and [Interpret]. This comment is the specification.
//
// A hook is started anew for every event. It gets one frame on stdin, up to the end of the stream, and answers with one
// frame on stdout. A frame is one JSON object (RFC 8259) in UTF-8, with only white space before and after it, at most
// [MaxFrame] bytes, at most 65536 values and at most 256 levels. No key may occur twice in an object. Keys are
// case-sensitive. Text on stderr is for people. The host keeps 1 MiB of each stream and reads the rest.
//
// # The frame of an event
//
//	{"hook_event_name":"PreToolUse","session_id":"s-1","cwd":"/src","toolName":"git.show","toolInput":{"rev":"HEAD"}}
//
// Every frame has the first three keys. A hook must ignore unknown keys, since a later host may send more.
//
//	event                    its keys, beyond the three                    may change
//	UserPromptSubmit         prompt (string)                               updatedInput: the prompt, a string
//	AssistantMessageRender   content (string)                              updatedOutput: the content, a string
//	PreToolUse               toolName (string), toolInput (object)         updatedInput: the input, an object
//	PostToolUse              the same, toolResult (any), isError (bool)    updatedOutput: the result, anything but null
//	SessionStart             none                                          nothing
//	SessionEnd               none                                          nothing
//
// A host writes a frame on one line, with a newline. The content is redacted first. Bytes that are not UTF-8 are
// replaced by U+FFFD. A hook need not read its frame.
//
// # The answer
//
//	{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"rev":"main"}}}
//
// Every key is optional, and so is the frame. Without them nothing is changed.
//
//	continue             bool     false has the same effect as exit code 2
//	systemMessage        string   for the person; if something is blocked, the reason
//	hookSpecificOutput   object   the following
//	  hookEventName      string   the event that is answered; it is an error if this is not the event of the frame
//	  updatedInput       see above; if omitted, unchanged
//	  updatedOutput
//
// No key may be null. It is an error if a key is not in this list, or if updatedOutput is used for updatedInput: the
// key may have been meant to remove or stop something. If there is an error, the whole answer is ignored.
//
// # Exit codes
//
//	0       the answer counts
//	2       blocks UserPromptSubmit and PreToolUse; for other events a soft failure
//	other   a soft failure, whatever is on stdout
//
// If the hook blocks, the reason is systemMessage, or else the first KiB of stderr. It also blocks if its answer cannot
// be parsed.
//
// These are soft failures too: the hook does not start, exceeds its time limit, writes more than 1 MiB on stdout or
// gives an answer with an error, or the host cannot make the frame because it would be over 1 MiB. If onFailure is
// "pass", the event continues unchanged and a person is warned. If it is "block", the event does not continue. The
// default is "block" for PreToolUse and "pass" for all others.
//
// If a hook exceeds its time limit, it gets SIGTERM, and SIGKILL a second later. Its output is ignored.
//
// Several hooks for one event form a chain, in the order of hooks.json: each gets the event as the previous one left
// it. The first that blocks ends the chain.
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
// It has the size limit and the form of a frame, and is parsed strictly: any other key is an error with line and
// column. Each line below ends with the default, if there is one.
//
//	command      split at white space, no shell: quotes are literal, a leading ~/ of a word is the home directory
//	argv         the arguments as they are; a hook must have either command or argv
//	timeout_ms   1 to 600000; 10000
//	env          names of variables that it gets; not BAILEY_*, those that every hook has or those of [bailey.Loads]
//	sandbox      false: it runs without a cage; true
//	matcher      for events of tools: a glob for the whole toolName, * is any text and ? any character; every tool
//	filesystem   read, write: absolute paths, or ~/; in addition to those of every hook
//	network      allow: host:port, host in lower case, exact or with a leading *.; none
//	onFailure    block or pass; "block" at SessionEnd is an error
//
// The program is an absolute path, or a bare name that is searched in PATH. A program with a path may read its own
// directory; a bare name has no such directory.
//
// testdata/vectors.json contains frames, answers and files with the results that each side must produce.
package hook
