package apitype

// ToolsQuery is the query for the tool definitions that an agent would get.
const ToolsQuery = "tools"
