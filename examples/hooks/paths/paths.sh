#!/bin/sh
# A hook for PostToolUse: what stands for somebody's home directory in a tool's result becomes "~", keys of objects included.
# Nothing is answered where nothing changed. Whatever goes wrong is an exit code: hooks.json says onFailure "block", so that
# then the result is withheld.
set -eu
exec jq -c '
  def short: gsub("(?<![A-Za-z0-9_.-])(/home|/Users)/[A-Za-z0-9_][A-Za-z0-9_.-]*"; "~");
  def all: walk(if type == "string" then short elif type == "object" then with_entries(.key |= short) else . end);
  if .hook_event_name != "PostToolUse" then error("this hook is for PostToolUse") else . end
  | (.toolResult | all) as $new
  | if $new == .toolResult then {} else {hookSpecificOutput: {hookEventName: "PostToolUse", updatedOutput: $new}} end'
