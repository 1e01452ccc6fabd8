package apitype

import (
	"time"
)

// KeptSession is the public information about a map.
type KeptSession struct {
	Texts int       `json:"texts"` // texts that have a token
	Used  time.Time `json:"used"`
	Until time.Time `json:"until"`
}
