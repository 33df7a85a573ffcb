"""Reads jobs with a sign-in that has ended, and prints the error."""

import berth

try:
    while True:
        list(berth.jobs(limit=1))
except berth.Error as error:
    print(f"{type(error).__name__}: {error}")
