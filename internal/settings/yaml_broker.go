package settings

import (
	"path/filepath"

	"github.com/goccy/go-yaml/ast"
)

// Broker says where credentials are leased.
type Broker struct {
	Socket string `json:"socket"`
	UID    int    `json:"uid"` // uid of the process that must listen there
	// CheckpointKey has the ledger's checkpoints signed with a key of the broker, not of the home.
	CheckpointKey bool `json:"checkpointKey,omitempty"`
}

// brokerOf reads the setting broker. The uid has no default: otherwise an attacker that replaces the broker's socket
// would be trusted.
func brokerOf(n ast.Node) (b *Broker, err error) {
	if _, none := n.(*ast.NullNode); none || n == nil {
		return nil, nil
	}
	b = &Broker{UID: -1}
	err = each(n, "part of broker", keys{
		"socket": func(n ast.Node) (err error) { b.Socket, err = wordOf(n, maxSigner); return err },
		"uid": func(n ast.Node) error {
			i, ok := n.(*ast.IntegerNode)
			if !ok {
				return fault(n, "uid is a number: that of the broker's user (id -u bailey-broker)")
			}
			switch v := i.Value.(type) {
			case uint64:
				if v < 1<<31 {
					b.UID = int(v)
				}
			case int64:
				if v >= 0 && v < 1<<31 {
					b.UID = int(v)
				}
			}
			if b.UID < 0 {
				return fault(n, "%s is no uid", n)
			}
			return nil
		},
		"checkpointKey": truth("checkpointKey", &b.CheckpointKey),
	})
	switch {
	case err != nil:
		return nil, err
	case !filepath.IsAbs(b.Socket) || filepath.Clean(b.Socket) != b.Socket:
		return nil, fault(n, "broker wants socket, the absolute path of its socket")
	case b.UID < 0:
		return nil, fault(n, "broker wants uid, that of the broker's user: who else listens there is not believed")
	}
	return b, nil
}
