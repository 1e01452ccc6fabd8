package apitype

// MaxPiece is the maximum size of an input or output frame in bytes. Neither side holds more than a few frames.
const MaxPiece = 64 << 10
