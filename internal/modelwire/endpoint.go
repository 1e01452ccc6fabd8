package modelwire

import (
	"net/http"
	"net/url"
	"strings"
)

// Endpoint is one function of a provider's interface.
type Endpoint struct {
	Dialect   Dialect
	Operation Operation
	Model     string // named by the path (Gemini); otherwise the body names it
	Streams   bool   // the reply is always a stream; otherwise the request's body decides, see Summary.Stream
	Array     bool   // the stream is one JSON array, not server-sent events
	Lines     bool   // the reply is one JSON value a line (results of a batch)
	Opaque    bool   // the bodies are uploads or downloads that this package cannot read
}

// prefixes are what base URLs of providers have before the names of their endpoints.
var prefixes = []string{
	"/v1", "/v1beta", "/v1alpha", "/api/v1", "/openai/v1", "/v1beta/openai", "/backend-api/codex", "",
}

// Recognise returns the endpoint of a request. path may have a query. It returns false for any other endpoint; such a
// request must be refused, because its body would pass unread. A path with empty, "." or ".." segments or with encoded
// characters is not recognised. The paths of models and files are the same at Anthropic and OpenAI: their dialect is
// Anthropic, and a caller that knows the provider may replace it.
func Recognise(method, path string) (Endpoint, bool) {
	path, query, _ := strings.Cut(path, "?")
	if strings.ContainsAny(path, "%\\#;") || strings.Contains(path, "//") || strings.Contains(path, "/.") {
		return Endpoint{}, false
	}
	for _, prefix := range prefixes {
		rest, ok := strings.CutPrefix(path, prefix+"/")
		if !ok {
			continue
		}
		if prefix == "/v1" || prefix == "/v1beta" || prefix == "/v1alpha" {
			if e, ok := recogniseGemini(method, rest, query); ok {
				return e, true
			}
		}
		if prefix == "/v1beta" || prefix == "/v1alpha" {
			if rest == "models" || strings.HasPrefix(rest, "models/") {
				return Endpoint{Dialect: Gemini, Operation: Models}, method == http.MethodGet
			}
			continue
		}
		e, ok := recogniseFixed(method, strings.Split(strings.TrimSuffix(rest, "/"), "/"))
		if e.Operation == Stored {
			values, err := url.ParseQuery(query)
			e.Streams, ok = values.Get("stream") == "true", ok && err == nil
		}
		if ok {
			return e, true
		}
	}
	return Endpoint{}, false
}

// recogniseFixed recognises the endpoints of Anthropic and OpenAI by the segments of their path.
func recogniseFixed(method string, path []string) (Endpoint, bool) {
	post, get := method == http.MethodPost, method == http.MethodGet
	read := get || method == http.MethodDelete
	switch path[0] {
	case "messages":
		return recogniseMessages(method, path[1:])
	case "responses":
		return recogniseResponses(method, path[1:])
	case "chat":
		return Endpoint{Dialect: OpenAIChat, Operation: Generate}, post && len(path) == 2 && path[1] == "completions"
	case "embeddings":
		return Endpoint{Dialect: OpenAIChat, Operation: Embed}, post && len(path) == 1
	case "models":
		return Endpoint{Dialect: Anthropic, Operation: Models}, get && len(path) >= 1
	case "batches":
		ok := len(path) == 1 && (post || get) || len(path) == 2 && get || len(path) == 3 && post && path[2] == "cancel"
		return Endpoint{Dialect: OpenAIChat, Operation: Batches}, ok
	case "files":
		ok := len(path) == 1 && (post || get) || len(path) == 2 && read || len(path) == 3 && get && path[2] == "content"
		return Endpoint{Dialect: Anthropic, Operation: Files, Opaque: true}, ok
	}
	return Endpoint{}, false
}

func recogniseMessages(method string, path []string) (Endpoint, bool) {
	post, get := method == http.MethodPost, method == http.MethodGet
	switch {
	case len(path) == 0:
		return Endpoint{Dialect: Anthropic, Operation: Generate}, post
	case len(path) == 1 && path[0] == "count_tokens":
		return Endpoint{Dialect: Anthropic, Operation: CountTokens}, post
	case path[0] != "batches":
		return Endpoint{}, false
	}
	e := Endpoint{Dialect: Anthropic, Operation: Batches}
	switch len(path) {
	case 1:
		return e, post || get
	case 2:
		return e, get || method == http.MethodDelete
	case 3:
		e.Lines = path[2] == "results"
		return e, get && e.Lines || post && path[2] == "cancel"
	}
	return Endpoint{}, false
}

func recogniseResponses(method string, path []string) (Endpoint, bool) {
	post, get := method == http.MethodPost, method == http.MethodGet
	switch {
	case len(path) == 0:
		return Endpoint{Dialect: OpenAIResponses, Operation: Generate}, post
	case len(path) == 1 && path[0] == "compact":
		return Endpoint{Dialect: OpenAIResponses, Operation: Compact}, post
	case len(path) == 1 && path[0] == "input_tokens":
		return Endpoint{Dialect: OpenAIResponses, Operation: CountTokens}, post
	case len(path) == 1:
		return Endpoint{Dialect: OpenAIResponses, Operation: Stored}, get || method == http.MethodDelete
	case len(path) == 2 && path[1] == "cancel":
		return Endpoint{Dialect: OpenAIResponses, Operation: Stored}, post
	case len(path) == 2 && path[1] == "input_items":
		return Endpoint{Dialect: OpenAIResponses, Operation: Stored}, get
	}
	return Endpoint{}, false
}

// recogniseGemini recognises models/NAME:METHOD, the same for tuned models, and the list of models.
func recogniseGemini(method, path, query string) (Endpoint, bool) {
	name, verb, called := strings.Cut(path, ":")
	collection, model, ok := strings.Cut(name, "/")
	e := Endpoint{Dialect: Gemini, Model: model}
	if !ok || !called || collection != "models" && collection != "tunedModels" || model == "" ||
		strings.Contains(model, "/") {
		return Endpoint{}, false
	}
	switch verb {
	case "generateContent":
		e.Operation = Generate
	case "streamGenerateContent":
		values, err := url.ParseQuery(query)
		alt := values["alt"]
		e.Operation, e.Streams = Generate, true
		e.Array = len(alt) == 0 || len(alt) == 1 && alt[0] == "json"
		if err != nil || !e.Array && (len(alt) != 1 || alt[0] != "sse") {
			return Endpoint{}, false
		}
	case "countTokens":
		e.Operation = CountTokens
	case "embedContent", "batchEmbedContents":
		e.Operation = Embed
	default:
		return Endpoint{}, false
	}
	return e, method == http.MethodPost
}
