package apitype

// KeyChanged is the answer of trust and untrust.
type KeyChanged struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"`
	Name    string   `json:"name"`
	Key     string   `json:"key,omitempty"`   // the line of the key file
	Packs   []string `json:"packs,omitempty"` // installed packs that it signed
}

const PackKeysQuery = "pack.keys"
