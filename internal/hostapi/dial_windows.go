package hostapi

import (
	"bailey"
	"bailey/internal/peer"
)

func (c *Client) dialSocket() (*peer.Conn, error) {
	return nil, bailey.Denied.New("sandboxes exist on Linux only", "use a Linux host, or WSL")
}
