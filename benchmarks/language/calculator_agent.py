"""An agent program that knows a model by OPENAI_BASE_URL alone: the model may use a calculator."""

import json
import os
import re
import sys
import urllib.request


def chat(messages):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, key)) as answer:
        return json.load(answer)["choices"][0]["message"]


def run(task):
    messages = [{"role": "user", "content": task["prompt"]}]
    for _ in range(2):
        answer = chat(messages)
        said = re.fullmatch(r"\?(\d+)\+(\d+)", answer["content"])
        if said is None:
            break
        result = int(said[1]) + int(said[2])
        messages += [answer, {"role": "user", "content": f"={result}"}]
    return answer["content"]


if __name__ == "__main__":
    print(run(json.load(sys.stdin)))
