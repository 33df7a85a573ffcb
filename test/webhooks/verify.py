"""Reads messages with their secret from standard input, and prints which of them standardwebhooks accepts."""
import json
import sys

from standardwebhooks import Webhook


def accepts(message):
    try:
        Webhook(message["secret"]).verify(message["body"], message["headers"])
        return True
    except Exception:
        return False


print(json.dumps([accepts(message) for message in json.load(sys.stdin)]))
