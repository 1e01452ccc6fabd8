//go:build linux || darwin

package hostapi

import "bailey/internal/peer"

func (c *Client) dialSocket() (*peer.Conn, error) {
	if c.Root {
		return peer.DialUID(c.Socket, 0)
	}
	return peer.Dial(c.Socket)
}
