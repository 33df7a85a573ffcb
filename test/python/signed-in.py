"""Reads jobs with the sign-in of the command line until its token was renewed twice, and prints True."""

import time

import berth
from berth._context import read_config

client = berth.Client(context="short")


def token() -> str:
    return str(read_config()["contexts"]["short"]["signIn"]["accessToken"])


seen = {token()}
while len(seen) < 3:
    list(client.jobs(limit=1))
    seen.add(token())
    time.sleep(0.2)
print(True)
