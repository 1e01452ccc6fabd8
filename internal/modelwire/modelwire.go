// Package modelwire reads and edits the HTTP bodies that clients exchange with model providers: Anthropic Messages,
// OpenAI Responses, Chat Completions and Embeddings, and Gemini. It has no state of its own and does no I/O.
//
// [Recognise] tells which [Endpoint] a request is for. [Edit] passes every text of a request that a model can read to
// a function, for example one that hides secrets. [Restore] does the same for a whole reply, and [Stream] for a reply
// that arrives in events, where a text or a piece of JSON can be cut at any byte.
//
// # Bytes
//
// Only string values whose text the function changed are written anew. All other bytes stay as they came: white space,
// the order of keys, the spelling of numbers and of escapes. A prefix of a conversation that the provider has cached
// therefore stays equal from turn to turn, as long as the function returns the same for the same text.
//
// A body is refused if two programs could read it differently: bytes that are not UTF-8, a key that is twice in one
// object, deeper nesting than [MaxDepth], more bytes than [MaxBody].
//
// # Texts that are never passed on
//
// Thinking and its signatures, encrypted reasoning, identifiers, cache_control, JSON schemas except for their titles
// and descriptions, names of models and tools, metadata, images, audio and PDFs. Summary.Opaque lists the media types
// that were not read. In a reply, character offsets of citations and counts of tokens refer to the text as the model saw it.
//
// Every string at an unknown place is passed on with the kind that its surroundings have.
package modelwire

import (
	"errors"
	"io"
)

// Limits of one body or one event.
const (
	MaxBody  = 32 << 20 // bytes
	MaxDepth = 256      // arrays and objects inside each other
)

// Causes of the errors of this package, which are of kind bailey.Invalid. A proxy must not forward such a body.
var (
	ErrUnreadable = errors.New("the body cannot be read") // not JSON, ambiguous JSON, or texts in a form that is not read
	ErrTooLarge   = errors.New("the body is too large")
)

// Dialect is the family of formats that an endpoint belongs to.
type Dialect string

// The dialects.
const (
	Anthropic       Dialect = "anthropic"
	OpenAIResponses Dialect = "openai-responses"
	OpenAIChat      Dialect = "openai-chat" // also embeddings
	Gemini          Dialect = "gemini"
)

// Operation is the purpose of an endpoint.
type Operation string

// The operations.
const (
	Generate    Operation = "generate"     // a model answers: messages, responses, chat completions, generateContent
	CountTokens Operation = "count-tokens" // of a request that Generate would accept
	Compact     Operation = "compact"      // a conversation becomes shorter: responses/compact
	Embed       Operation = "embed"
	Models      Operation = "models"  // a list of models, or one of them
	Batches     Operation = "batches" // many requests at once, and their results
	Files       Operation = "files"   // uploads and downloads; see Endpoint.Opaque
	Stored      Operation = "stored"  // a response that the provider keeps
)

// Where is the place of a text. The zero Where is a text of unknown purpose.
type Where struct {
	Kind  Kind
	Tool  string // name of the tool, for ToolInput, ToolResult and ToolDescription, if the body tells it
	Field string // RFC 6901 pointer of the string inside a tool's input or structured result; "" for free text
	Key   bool   // the text is a key of an object at Field; only in requests
}

// Kind is the purpose of a text.
type Kind uint8

// The kinds of texts.
const (
	Other           Kind = iota // of no known purpose
	System                      // instructions
	User                        // a prompt
	Assistant                   // an earlier or present answer
	ToolInput                   // a string in the arguments of a call
	ToolResult                  // output of a call
	ToolDescription             // of a tool that is offered, and of the properties of its input
	Document                    // a file in the conversation
	Link                        // an address that the provider fetches; it works only if it is unchanged
)

// String returns the name of k in lower case.
func (k Kind) String() string {
	names := [...]string{"other", "system", "user", "assistant", "tool-input", "tool-result", "tool-description",
		"document", "link"}
	if int(k) < len(names) {
		return names[k]
	}
	return names[Other]
}

// TextFunc returns the text that replaces text. It must return the same for the same arguments.
type TextFunc func(where Where, text string) string

// Editor edits the texts of a reply that arrives in pieces. For each text, the bytes that its writer writes must be
// those that Text returns for the whole, because most providers repeat at the end of a reply what they sent in pieces.
type Editor interface {
	// Text edits a whole text.
	Text(where Where, text string) string
	// Writer returns a writer that writes the edited text to out, for example a redact.Restorer. It should hold back
	// as little as it can, and must write the rest when it is closed. If it is nil, the text stays as it is.
	Writer(where Where, out io.Writer) io.WriteCloser
}

// Summary describes a request.
type Summary struct {
	Model       string
	Stream      bool     // the reply arrives in events
	Tools       []string // names of the tools that are offered
	Messages    int      // messages or items of the conversation
	LastPrompt  string   // edited text of the user in the last message; "" if that has results of tools only
	PromptParts []string // the texts of LastPrompt; in a batch, both are those of all requests
	Opaque      []string // media types of contents that were not read, for example "image/png", each once
	Session     string   // the conversation that the body names: prompt_cache_key or metadata
	Previous    string   // the earlier response, conversation or cached content that the provider continues
	MaxTokens   int64    // largest answer; 0 if the body does not limit it
	TextBytes   int64    // of these texts, as JSON spells them
	Texts       int      // texts that were passed to the function or found in the cache
	Edited      int      // texts that changed
	Changed     int      // texts whose edited form differs from that of an earlier request, so that a cached prefix ends
}

// Usage describes a reply. Counts are those of the provider; 0 if it did not say.
type Usage struct {
	Model      string
	Input      int64 // tokens of the request, with those of the cache
	Output     int64 // tokens of the answer, with those of reasoning
	CacheRead  int64
	CacheWrite int64
	Reasoning  int64
	StopReason string   // as spelt by the provider
	TextBytes  int64    // of the texts of the answer, as they arrived; without thinking
	ToolNames  []string // tools that the answer calls, in order
	Error      string   // type of the error that ended the reply; "" if none did
}
