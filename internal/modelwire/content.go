package modelwire

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// inElement returns the place of an element of the array at w.
func (w Where) inElement(i int) Where {
	if w.Field == longPlace || len(w.Field) >= maxPlace-20 {
		w.Field = longPlace
		return w
	}
	w.Field += "/" + strconv.Itoa(i)
	return w
}

// kindOfRole returns the kind of the texts of a message.
func kindOfRole(role string) Kind {
	switch role {
	case "system", "developer":
		return System
	case "assistant", "model":
		return Assistant
	case "tool", "function":
		return ToolResult
	}
	return User
}

// editContent edits a part of a conversation: a text, a list of parts, a part, a message or an item. All dialects are
// read in the same way, because their types and keys do not contradict each other.
func (w *walker) editContent(n int, where Where) {
	switch w.doc.kindOf(n) {
	case '"':
		w.editString(n, where)
	case '[':
		w.doc.eachElement(n, func(_, v int) { w.editContent(v, where) })
	case '{':
		if !w.editTyped(n, where) {
			w.editMembers(n, where)
		}
	}
}

// editTyped edits an object whose type has a meaning of its own. It returns false for any other.
func (w *walker) editTyped(n int, where Where) bool {
	kind := w.doc.textOf(w.doc.memberOf(n, "type"))
	switch {
	case kind == "reasoning":
		return true // the provider accepts it only as it sent it; so, too, the next ones
	case where.Kind == Assistant && (strings.HasSuffix(kind, "thinking") || w.doc.isTrue(w.doc.memberOf(n, "thought"))):
		return true
	case kind == "image", kind == "document", kind == "file", kind == "input_file", kind == "input_image",
		kind == "image_url", kind == "input_audio":
		if where.Kind != ToolResult {
			where.Kind = Document
		}
		w.editMembers(n, where)
	case kind == "tool_result" || strings.HasSuffix(kind, "_tool_result"):
		w.editMembers(n, Where{Kind: ToolResult, Tool: w.tools[w.doc.textOf(w.doc.memberOf(n, "tool_use_id"))]})
	case strings.HasSuffix(kind, "_output") && w.doc.memberOf(n, "output") >= 0:
		w.editMembers(n, Where{Kind: ToolResult, Tool: w.tools[w.doc.textOf(w.doc.memberOf(n, "call_id"))]})
	case strings.HasSuffix(kind, "tool_use"), strings.HasSuffix(kind, "_call"):
		w.editCall(n, kind)
	default:
		return false
	}
	return true
}

// editCall edits a call of a tool.
func (w *walker) editCall(n int, kind string) {
	name := w.doc.textOf(w.doc.memberOf(n, "name"))
	if name == "" {
		name = kind // a tool of the provider, for example local_shell_call
	}
	where := Where{Kind: ToolInput, Tool: name}
	w.doc.eachMember(n, func(key string, _, v int) {
		switch {
		case key == "name" || isOpaqueKey(key):
		case key == "result" && kind == "image_generation_call":
			w.noteOpaque("image/*")
		case key == "arguments":
			w.editNested(v, where)
		case key == "output", key == "results", key == "outputs":
			w.editContent(v, Where{Kind: ToolResult, Tool: name})
		default:
			w.editData(v, where)
		}
	})
}

// editMembers edits the members of an object by their keys.
func (w *walker) editMembers(n int, where Where) {
	if role := w.doc.textOf(w.doc.memberOf(n, "role")); role != "" {
		where = Where{Kind: kindOfRole(role)}
		if where.Kind == ToolResult {
			where.Tool = w.tools[w.doc.textOf(w.doc.memberOf(n, "tool_call_id"))]
		}
	}
	w.doc.eachMember(n, func(key string, _, v int) { w.editMember(n, key, v, where) })
}

// editMember edits a member of the object n.
func (w *walker) editMember(n int, key string, v int, where Where) {
	if !isOpaqueKey(key) && !w.editSpecial(n, key, v, where) {
		w.editContent(v, where)
	}
}

// editSpecial edits a member whose key has a meaning of its own. It returns false for any other.
func (w *walker) editSpecial(n int, key string, v int, where Where) bool {
	switch key {
	case "name":
		return w.doc.memberOf(n, "role") >= 0 // of a participant; at an unknown place it is a text
	case "citations", "annotations", "logprobs", "logprobsResult", "groundingMetadata", "citationMetadata":
		return w.reply // with offsets in the text as the model saw it
	case "source", "inlineData", "inline_data":
		return w.editSource(v, where)
	case "image_url", "file_url", "url", "fileUri", "file_uri":
		return w.editLink(v, where)
	case "file_data":
		return w.editFile(v, where)
	case "arguments":
		w.editNested(v, Where{Kind: ToolInput, Tool: w.doc.textOf(w.doc.memberOf(n, "name"))})
	case "input_audio", "audio":
		return w.editAudio(v, where)
	case "functionCall", "function_call", "function", "custom":
		return w.editFunction(v)
	case "functionResponse", "function_response":
		return w.editResponse(v)
	case "tools", "functionDeclarations":
		w.editTools(v)
	default:
		return false
	}
	return true
}

// editAudio edits what an object says of its audio. It returns false if v has none.
func (w *walker) editAudio(v int, where Where) bool {
	if w.doc.memberOf(v, "data") < 0 && w.doc.memberOf(v, "id") < 0 {
		return false
	}
	w.noteOpaque("audio/" + w.doc.textOf(w.doc.memberOf(v, "format")))
	w.doc.eachMember(v, func(key string, _, m int) {
		if key != "data" && key != "format" {
			w.editMember(v, key, m, where)
		}
	})
	return true
}

// editFunction edits the call in a part of Gemini or in a tool call of Chat Completions.
func (w *walker) editFunction(v int) bool {
	if w.doc.kindOf(v) != '{' {
		return false
	}
	where := Where{Kind: ToolInput, Tool: w.doc.textOf(w.doc.memberOf(v, "name"))}
	w.doc.eachMember(v, func(key string, _, m int) {
		switch {
		case key == "name" || isOpaqueKey(key):
		case key == "arguments":
			w.editNested(m, where)
		default: // args, input
			w.editData(m, where)
		}
	})
	return true
}

// editResponse edits the result of a call in a part of Gemini.
func (w *walker) editResponse(v int) bool {
	if w.doc.kindOf(v) != '{' {
		return false
	}
	where := Where{Kind: ToolResult, Tool: w.doc.textOf(w.doc.memberOf(v, "name"))}
	w.doc.eachMember(v, func(key string, _, m int) {
		switch {
		case key == "name" || isOpaqueKey(key):
		case key == "parts":
			w.editContent(m, where)
		default:
			w.editData(m, where)
		}
	})
	return true
}

// editSource edits a content that names its media type. It returns false if v has none.
func (w *walker) editSource(v int, where Where) bool {
	media := ""
	for _, key := range []string{"media_type", "mimeType", "mime_type"} {
		if m := w.doc.memberOf(v, key); m >= 0 {
			media = w.doc.textOf(m)
		}
	}
	data := w.doc.memberOf(v, "data")
	if w.doc.kindOf(data) != '"' || media == "" {
		return false
	}
	if where.Kind != ToolResult {
		where.Kind = Document
	}
	w.doc.eachMember(v, func(key string, _, m int) {
		switch {
		case m != data:
			w.editMember(v, key, m, where)
		case w.doc.textOf(w.doc.memberOf(v, "type")) == "text":
			w.editString(data, where)
		case isTextMedia(media):
			w.editBase64(data, where)
		default:
			w.noteOpaque(media)
		}
	})
	return true
}

// editBase64 edits a text that is in base64.
func (w *walker) editBase64(n int, where Where) {
	mark := where
	mark.Field = "\x00base64"
	w.editRaw(n, mark, func(s string) string {
		text, encoding, ok := decodeBase64(s)
		if !ok {
			w.refuseBody("a text document is no base64", "Send the document as base64 or as plain text.")
			return s
		}
		if after := w.text(where, text); after != text {
			return encoding.EncodeToString([]byte(after))
		}
		return s
	})
}

// decodeBase64 decodes either alphabet, with padding or without.
func decodeBase64(s string) (string, *base64.Encoding, bool) {
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding,
		base64.RawURLEncoding} {
		if b, err := e.DecodeString(s); err == nil {
			return string(b), e, true
		}
	}
	return "", nil, false
}

// editLink edits an address, or a file inside a "data:" address (RFC 2397). It returns false for an object, whose
// members are edited one by one.
func (w *walker) editLink(n int, where Where) bool {
	if w.doc.kindOf(n) != '"' {
		return false
	}
	media, isData := w.readDataHeader(n)
	switch {
	case !isData:
		where.Kind = Link
		w.editString(n, where)
	case isTextMedia(media):
		w.editDataAddress(n, where)
	default:
		media, _, _ = strings.Cut(media, ";")
		w.noteOpaque(media)
	}
	return true
}

// readDataHeader returns the media type and its parameters, if a string is a "data:" address.
func (w *walker) readDataHeader(n int) (media string, isData bool) {
	raw := w.doc.rawValue(n)
	if i := bytes.IndexByte(raw, ','); i >= 0 && bytes.IndexByte(raw[:i], '\\') < 0 {
		raw = append(raw[:i:i], '"') // the data may be long
	}
	s := strings.TrimSpace(unquoteText(raw))
	if len(s) < len("data:") || !strings.EqualFold(s[:len("data:")], "data:") {
		return "", false
	}
	media, _, _ = strings.Cut(s[len("data:"):], ",")
	return strings.ToLower(media), true
}

// editDataAddress edits the text in a "data:" address.
func (w *walker) editDataAddress(n int, where Where) {
	mark := where
	mark.Field = "\x00data"
	w.editRaw(n, mark, func(s string) string {
		head, data, _ := strings.Cut(s, ",")
		bare, isBase64 := strings.CutSuffix(strings.TrimSpace(head), ";base64")
		text, _, ok := decodeBase64(data)
		if !isBase64 {
			var err error
			text, err = url.PathUnescape(data)
			ok = err == nil
		}
		if !ok {
			w.refuseBody("a text document is no base64", "Send the document as base64 or as plain text.")
			return s
		}
		if after := w.text(where, text); after != text {
			return bare + ";base64," + base64.StdEncoding.EncodeToString([]byte(after))
		}
		return s
	})
}

// editFile edits a file: a "data:" address, base64 of a text, or a text. It returns false for an object.
func (w *walker) editFile(n int, where Where) bool {
	if w.doc.kindOf(n) != '"' {
		return false
	}
	if _, isData := w.readDataHeader(n); isData {
		return w.editLink(n, where)
	}
	text, _, ok := decodeBase64(w.doc.textOf(n))
	switch {
	case !ok:
		w.editString(n, where)
	case utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.HasPrefix(text, "%PDF-"):
		w.editBase64(n, where)
	default:
		w.noteOpaque("application/octet-stream")
	}
	return true
}

// noteOpaque records a content that was not read.
func (w *walker) noteOpaque(media string) {
	media = strings.ToLower(media)
	if len(media) <= 100 && !slices.Contains(w.sum.Opaque, media) {
		w.sum.Opaque = append(w.sum.Opaque, media)
	}
}

// isTextMedia reports whether contents of a media type are text.
func isTextMedia(media string) bool {
	media, _, _ = strings.Cut(strings.ToLower(media), ";")
	media = strings.TrimSpace(media)
	if media == "" || strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+json") ||
		strings.HasSuffix(media, "+xml") {
		return true
	}
	name, ok := strings.CutPrefix(media, "application/")
	return ok && slices.Contains([]string{"json", "xml", "yaml", "x-yaml", "toml", "javascript", "typescript",
		"x-javascript", "x-sh", "x-python", "x-httpd-php", "sql", "x-ndjson", "jsonl", "csv", "rtf"},
		strings.TrimPrefix(name, "vnd."))
}

// isOpaqueKey reports whether the value of a key must stay as it is, wherever it stands in the structure of a body.
func isOpaqueKey(key string) bool {
	switch key {
	case "type", "id", "role", "object", "status", "model", "signature", "thoughtSignature", "thought_signature",
		"tool_name", "server_name", "server_label", "caller",
		"cache_control", "media_type", "mimeType", "mime_type", "detail", "phase",
		"reasoning_content", "reasoning", "reasoning_details", "tool_choice", "usage", "usageMetadata",
		"finish_reason", "finishReason", "stop_reason", "stop_sequence", "system_fingerprint", "service_tier":
		return true
	}
	return strings.HasPrefix(key, "encrypted_") || strings.HasSuffix(key, "_id") || strings.HasSuffix(key, "_ids") ||
		strings.HasSuffix(key, "Id") || strings.HasSuffix(key, "_at")
}
