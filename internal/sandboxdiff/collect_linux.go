package sandboxdiff

import "bailey"

// Collect lists the root file system under the directory root.
func Collect(root string) (*Inventory, error) {
	return nil, bailey.Unavailable.New("inventories are not collected yet", "")
}
