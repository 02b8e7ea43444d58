"""Wicked: breaks the protocol for one request, in the way that its argument names."""

import sys

import toy

RUBBISH = {
    "text": "Segmentation fault (just kidding)",
    "binary": "\x00\x01\x7f",
    "array": "[1, 2, 3]",
    "deep": "[" * 100_000,
    "number": '{"id": 7, "outcome": "accepted"}',
    "other-id": '{"id": "toy/other", "outcome": "rejected"}',
    "no-contents": '{"id": "toy/trap", "outcome": "accepted"}',
    "misspelt": '{"id": "toy/trap", "outcome": "accepted", "batches": [{"base_ofset": "0", "records": []}]}',
    # An answer too many: it is the next request whose answer is then wrong.
    "twice": '{"id": "toy/trap", "outcome": "rejected"}',
}


def trap(request):
    sys.stdout.write(RUBBISH[sys.argv[1]] + "\n")


toy.serve("rubbish", trap)
