//go:build !linux

package daemon

import (
	"context"
	"net"

	"bailey"
)

// socket is nobody's: without a cage there is no client that could be kept from the daemon's own.
type socket struct{}

func open(api bailey.API) (*socket, error) {
	return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "no cage here has a socket that leads to " + api.Socket, Hint: "use a host with Linux"}
}

func (*socket) dial(context.Context) (net.Conn, error) { return nil, net.ErrClosed }

func (*socket) Close() error { return nil }
