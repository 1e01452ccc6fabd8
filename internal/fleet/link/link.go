// Package link carries the frames of package fleet over gRPC: the service bailey.fleet.v1.Hosts of fleet.proto. A
// server has the handler of [NewHandler], a host calls [Dial]. A gateway does not link gRPC: it starts the program
// bailey-link, which is [Main], and talks to it over package pipe.
package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/fleet/pipe"
)

// codec encodes frames. Its name is that of protobuf, because the bytes are protobuf.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*fleet.Frame)
	if !ok {
		return nil, errors.New("not a frame")
	}
	data, err := fleet.Encode(f)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*fleet.Frame)
	if !ok {
		return errors.New("not a frame")
	}
	read, err := fleet.Decode(data.Materialize())
	if err == nil {
		*f = *read
	}
	return err
}

const (
	service = "bailey.fleet.v1.Hosts"
	method  = "Connect"
)

// Serve serves one stream until it ends.
type Serve func(ctx context.Context, stream fleet.Stream) error

// Admit admits a host by its token, or by the verified certificate of its connection; either can be missing.
type Admit func(ctx context.Context, token string, cert *x509.Certificate) (Serve, error)

type serveKey struct{}

// stream is either side of a gRPC stream.
type stream struct {
	s interface {
		SendMsg(any) error
		RecvMsg(any) error
	}
}

func (s stream) Send(f *fleet.Frame) error { return asError(s.s.SendMsg(f)) }

func (s stream) Recv() (*fleet.Frame, error) {
	f := &fleet.Frame{}
	if err := s.s.RecvMsg(f); err != nil {
		return nil, asError(err)
	}
	return f, nil
}

// admitted is a stream with what the interceptor has found.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (a admitted) Context() context.Context { return a.ctx }

// NewHandler returns a handler that passes the streams of hosts to admit, and all other requests to others. end ends the
// streams; they also end with ctx.
func NewHandler(ctx context.Context, admit Admit, others http.Handler) (h http.Handler, end func()) {
	g := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(fleet.MaxFrame+1024),
		grpc.MaxSendMsgSize(fleet.MaxFrame+1024),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			serve, err := admit(s.Context(), tokenOf(s.Context()), certificateOf(s.Context()))
			if err != nil {
				return asStatus(err)
			}
			return next(srv, admitted{s, context.WithValue(s.Context(), serveKey{}, serve)})
		}))
	ctx, cancel := context.WithCancelCause(ctx)
	g.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Metadata: "fleet.proto",
		Streams: []grpc.StreamDesc{{StreamName: method, ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				serve, ok := s.Context().Value(serveKey{}).(Serve)
				if !ok {
					return asStatus(bailey.Internal.New("the stream was not admitted", ""))
				}
				mine, done := context.WithCancelCause(s.Context())
				defer done(nil)
				defer context.AfterFunc(ctx, func() { done(context.Cause(ctx)) })()
				return asStatus(serve(mine, stream{s}))
			}}}}, struct{}{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			others.ServeHTTP(w, r)
			return
		}
		c := http.NewResponseController(w) // the limits are those of a request, and a stream stays open
		if err := errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})); err != nil {
			http.Error(w, "no streams here", http.StatusInternalServerError)
			return
		}
		g.ServeHTTP(w, r)
	}), func() { cancel(bailey.Unavailable.New("the server stops", "")) }
}

// tokenOf returns the token of a request, or "".
func tokenOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, v := range md.Get("authorization") {
		if scheme, token, _ := strings.Cut(v, " "); strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(token)
		}
	}
	return ""
}

// certificateOf returns the certificate of the client, if a CA of the server's settings has signed it.
func certificateOf(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// asStatus makes a status of an error. Its message is a fault in JSON.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unavailable
	switch bailey.KindOf(err) {
	case bailey.Denied:
		code = codes.PermissionDenied
	case bailey.Invalid:
		code = codes.InvalidArgument
	case bailey.Conflict:
		code = codes.Aborted
	}
	text, merr := json.Marshal(fleet.NewFault(err))
	if merr != nil {
		return merr
	}
	return status.Error(code, string(text))
}

// asError makes an error with a kind of a status.
func asError(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	var f fleet.Fault
	if json.Unmarshal([]byte(s.Message()), &f) == nil && f.Message != "" {
		return f.Err()
	}
	kind := bailey.Unavailable
	switch s.Code() {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.Unimplemented:
		kind = bailey.Invalid
	}
	return kind.New("the control plane cannot be reached: "+s.Message(), "check the URL, the network and the certificate")
}

// Dial connects to a control plane. The stream ends when ctx ends.
func Dial(ctx context.Context, t pipe.Target) (fleet.Stream, error) {
	u, err := t.Parse()
	if err != nil {
		return nil, err
	}
	secure, port := insecure.NewCredentials(), "80"
	if u.Scheme == "https" {
		c, err := tlsConfig(t)
		if err != nil {
			return nil, err
		}
		secure, port = credentials.NewTLS(c), "443"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	conn, err := grpc.NewClient("dns:///"+strings.TrimSuffix(u.Host, ":"+port)+":"+port, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(fleet.MaxFrame+1024),
			grpc.MaxCallSendMsgSize(fleet.MaxFrame+1024)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, "this URL cannot be used", "use https://NAME")
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	if t.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+t.Token)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+service+"/"+method)
	if err != nil {
		return nil, asError(err)
	}
	return stream{s}, nil
}

func tlsConfig(t pipe.Target) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, bailey.Invalid.New("the CA file has no certificate", "it must be PEM")
		}
	}
	if t.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, bailey.Invalid.Wrap(err, "cannot use the certificate of this host", "both files must be PEM and belong together")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
