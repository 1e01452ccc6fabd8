package apitype

// The location of the log's key, if the settings place it at the broker.
const (
	KeyAtBroker = "broker"
	KeyAtHome   = "home" // not moved yet
	keyStays    = "the log's key is a file of the home still, and signs no checkpoint: bailey audit key --rotate"
)
