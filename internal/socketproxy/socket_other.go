//go:build !linux

package socketproxy

import (
	"context"
	"net"

	"bailey"
)

// socket is unused here: without a cage a client could not be kept from the daemon's own socket.
type socket struct{}

func openSocket(api bailey.API) (*socket, error) {
	return nil, bailey.Unavailable.New("no jail here has a socket to "+api.Socket,
		"use a host with Linux")
}

func (*socket) dialTrusted(context.Context) (net.Conn, error) { return nil, net.ErrClosed }

func (*socket) Close() error { return nil }
