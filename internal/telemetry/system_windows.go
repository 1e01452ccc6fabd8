package telemetry

const system = "windows"
