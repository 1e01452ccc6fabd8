package apitype

// ImageEvent is the ledger event for an image of machines that is added or removed. It is written before the change.
const ImageEvent = "image.change"

// ImageChange is the data of the event.
type ImageChange struct {
	Action  string `json:"action"` // "add", "remove" or "verify"
	Name    string `json:"name"`
	Digest  string `json:"digest,omitempty"` // of what machines start from; absent if a damaged image is removed
	OS      string `json:"os,omitempty"`
	Release string `json:"release,omitempty"`
	From    string `json:"from,omitempty"` // origin
}
