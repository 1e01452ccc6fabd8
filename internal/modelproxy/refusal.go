package modelproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"bailey"
	"bailey/internal/modelwire"
)

// refusal is an error with the status that the client gets.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuseWith(status int, err error) error { return &refusal{status, err} }

// statusOf returns the status of an error for which no other was chosen.
func statusOf(err error) int {
	var chosen *refusal
	switch {
	case errors.As(err, &chosen):
		return chosen.status
	case errors.As(err, new(*bailey.SpentError)):
		return http.StatusTooManyRequests
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	switch bailey.KindOf(err) {
	case bailey.Denied, bailey.Blocked:
		return http.StatusForbidden
	case bailey.Invalid:
		return http.StatusBadRequest
	case bailey.NotFound:
		return http.StatusNotFound
	case bailey.Conflict:
		return http.StatusConflict
	case bailey.ToolFailed:
		return http.StatusBadGateway
	case bailey.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// writeRefusal answers with an error in the shape of the provider. Clients must not repeat a request that was refused
// by
// a rule: the answer would be the same.
func (x *exchange) writeRefusal(err error) {
	x.p.counts.refused.Add(1)
	status := statusOf(err)
	message := "Bailey: " + err.Error()
	if hint := bailey.HintOf(err); hint != "" {
		message += "; " + hint
	}
	if x.receipt != "" {
		message += fmt.Sprintf(" (receipt %s)", x.receipt)
	}
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if status < 500 {
		h.Set("X-Should-Retry", "false")
	}
	var spent *bailey.SpentError
	if errors.As(err, &spent) && !spent.Until.IsZero() {
		h.Set("Retry-After", strconv.Itoa(max(1, int(time.Until(spent.Until).Seconds()))))
	}
	if status == http.StatusRequestEntityTooLarge || status == http.StatusRequestTimeout {
		h.Set("Connection", "close")
	}
	http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(x.p.Patience.Read))
	x.w.WriteHeader(status)
	x.w.Write(modelwire.ErrorBody(x.endpoint.Dialect, status, "", message))
}

// transportFault describes why a provider was not reached, without text of the request.
func transportFault(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "its name has no address"
	case errors.As(err, &cert):
		return "its certificate is not trusted by this machine"
	case errors.As(err, &op) && op.Op == "dial":
		return "no connection: " + op.Err.Error()
	}
	return "it closed the connection without an answer"
}
