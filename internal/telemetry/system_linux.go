package telemetry

const system = "linux"
