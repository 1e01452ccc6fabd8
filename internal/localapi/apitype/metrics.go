package apitype

// MetricsReply is the answer of the gateway: metrics in the text format of Prometheus.
type MetricsReply struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}
