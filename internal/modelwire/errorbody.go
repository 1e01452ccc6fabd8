package modelwire

import (
	"net/http"
	"strconv"
)

// ErrorBody returns an error in the shape of a provider, as its clients expect it with the HTTP status. kind is the
// type of the error in the provider's words, for example "billing_error"; if it is empty, it follows from the status.
func ErrorBody(dialect Dialect, status int, kind, message string) []byte {
	quoted := string(quoteText(nil, message))
	switch dialect {
	case Anthropic:
		if kind == "" {
			kind = anthropicErrorKind(status)
		}
		return []byte(`{"type":"error","error":{"type":` + string(quoteText(nil, kind)) + `,"message":` + quoted + `}}`)
	case Gemini:
		if kind == "" {
			kind = geminiErrorKind(status)
		}
		return []byte(`{"error":{"code":` + strconv.Itoa(status) + `,"message":` + quoted + `,"status":` +
			string(quoteText(nil, kind)) + `}}`)
	}
	code := "null"
	if kind == "" {
		kind = openaiErrorKind(status)
	} else {
		code = string(quoteText(nil, kind))
	}
	return []byte(`{"error":{"message":` + quoted + `,"type":` + string(quoteText(nil, kind)) +
		`,"param":null,"code":` + code + `}}`)
}

func anthropicErrorKind(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	case 529:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

func openaiErrorKind(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	if status >= 500 {
		return "server_error"
	}
	return "invalid_request_error"
}

func geminiErrorKind(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if status >= 500 {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}
