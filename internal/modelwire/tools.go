package modelwire

// editTools edits the tools that a request offers, and records their names.
func (w *walker) editTools(n int) {
	if w.doc.kindOf(n) != '[' {
		w.editContent(n, Where{Kind: ToolDescription})
	}
	w.doc.eachElement(n, func(_, v int) {
		if w.doc.kindOf(v) == '{' {
			w.editTool(v)
		} else {
			w.editContent(v, Where{Kind: ToolDescription})
		}
	})
}

func (w *walker) editTool(n int) {
	name := w.doc.textOf(w.doc.memberOf(n, "name"))
	kind := w.doc.textOf(w.doc.memberOf(n, "type"))
	if name == "" && kind != "function" && kind != "custom" {
		name = kind // a tool of the provider, for example web_search
	}
	if name != "" && !w.reply {
		w.sum.Tools = append(w.sum.Tools, name)
	}
	where := Where{Kind: ToolDescription, Tool: name}
	w.doc.eachMember(n, func(key string, _, v int) {
		switch key {
		case "name", "format", "headers", "authorization", "authorization_token", "server_url", "server_label",
			"allowed_callers", "allowed_tools", "require_approval":
		case "function", "custom":
			w.editTool(v)
		case "functionDeclarations", "function_declarations", "tools":
			w.editTools(v)
		case "input_schema", "inputSchema", "output_schema", "parameters", "parametersJsonSchema",
			"parameters_json_schema", "response", "responseJsonSchema", "response_json_schema", "schema":
			w.editSchema(v, where, false)
		case "input_examples":
			w.editData(v, where)
		default:
			if !isOpaqueKey(key) {
				w.editContent(v, where)
			}
		}
	})
}

// editSchema edits the titles and descriptions in a JSON schema. All else in it is compared with values, so it stays.
// names means that the keys of the object are names of properties.
func (w *walker) editSchema(n int, where Where, names bool) {
	w.doc.eachElement(n, func(_, v int) { w.editSchema(v, where, false) })
	w.doc.eachMember(n, func(key string, _, v int) {
		switch {
		case names:
			w.editSchema(v, where, false)
		case key == "description", key == "title":
			w.editString(v, where)
		case key == "default", key == "const", key == "enum", key == "examples", key == "example":
		default:
			w.editSchema(v, where, key == "properties" || key == "$defs" || key == "definitions" ||
				key == "patternProperties")
		}
	})
}
