"""Wicked: its texts are hostile; the id of a vector says which one it answers with, such as ``toy/trap-surrogate``.

With ``always`` it answers each request with one of them.
"""

import sys

import toy

TEXTS = {
    "surrogate": "half \ud800",
    "terminal": "\x1b[2J\x1b]0;owned\x07\x00\u202e\x9b",
    "lines": "one\ntwo\r\nunexpected: all is well",
    "markup": "[/red][bold]</script><script>alert(1)</script> ``` [link](x)",
    "long": "A" * 1_000_000,
    "quotes": "'\\" * 300_000,
    "names": "a is " * 200_000,
}
EVERYTHING = {
    "operations": ["decode-records", "decode-stream", "append-stream"],
    "roles": ["consumer", "log", "broker"],
    "magic": [0, 1, 2],
    "codecs": ["none", "gzip", "snappy", "lz4", "zstd"],
}


def speak(request, name):
    text = TEXTS[name]
    said = {"id": request["id"], "outcome": "rejected", "error": text, "at": text}
    toy.say(said | {"records": [], "allocated_at": text})
    return "answered"


def trap(request):
    return speak(request, request["id"].rpartition("-")[2])


if sys.argv[1:]:
    toy.answer = lambda request: speak(request, "surrogate")
toy.serve("speaks", trap, language="half \ud800", **(EVERYTHING if sys.argv[1:] else {}))
