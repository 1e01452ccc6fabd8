package apitype

const (
	ShimInstallEvent   = "shim.install"
	ShimUninstallEvent = "shim.uninstall"
)

// ShimEntry is one shim and its state.
type ShimEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	Tool  string `json:"tool,omitempty"` // path of the tool in PATH without shims
	State string `json:"state"`          // ok, inactive, shadowed, stale
	Why   string `json:"why,omitempty"`
	Cure  string `json:"cure,omitempty"`
}
