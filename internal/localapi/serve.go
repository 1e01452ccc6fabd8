package localapi

// ShimDoor is the name in receipts of the front end for calls by a tool's own name.
const ShimDoor = "shim"
