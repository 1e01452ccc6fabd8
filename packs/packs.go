// Package packs contains the built-in packs: one directory each, with its pack.yaml. Load them with
// pack.LoadBuiltin(packs.FS).
package packs

import "embed"

// FS holds NAME/pack.yaml for every built-in pack.
//
//go:embed */pack.yaml
var FS embed.FS
