package apitype

// KeptQuery is the query for one redaction session that the gateway keeps.
const KeptQuery = "redactions"
