#!/usr/bin/env python3
"""A hook for UserPromptSubmit: has a model on this machine translate the prompt to English.

MODEL_URL is an endpoint that speaks the chat completions format, MODEL the model's name.
"""
import json
import os
import sys
import urllib.request

URL = os.environ.get("MODEL_URL", "http://127.0.0.1:11434/v1/chat/completions")
MODEL = os.environ.get("MODEL", "llama3.2")
TASK = "Translate what the user wrote to English. Leave code, paths and names as they are. Answer with the translation alone."


def translate(prompt):
    body = {"model": MODEL, "temperature": 0, "messages": [
        {"role": "system", "content": TASK}, {"role": "user", "content": prompt}]}
    request = urllib.request.Request(URL, json.dumps(body).encode(), {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the model is here, whatever HTTP_PROXY says
    with direct.open(request, timeout=8) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the model answered nothing")
    return text.strip()


def main():
    event = json.loads(sys.stdin.buffer.read())
    if event["hook_event_name"] != "UserPromptSubmit" or event["prompt"].isascii():
        return
    json.dump({
        "systemMessage": "the prompt was translated",
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "updatedInput": translate(event["prompt"])},
    }, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except Exception as why:
        sys.exit(f"not translated: {why}")  # on stderr, exit code 1: the prompt goes on as it was
