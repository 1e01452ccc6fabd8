package telemetry

const system = "darwin"
