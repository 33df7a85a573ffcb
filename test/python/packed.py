"""Packs a folder, and prints its entries and those of another archive as JSON."""

import io
import json
import sys
import tarfile

from berth._workdir import pack_workdir


def entries(content: bytes) -> list[list[object]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return sorted([one.name.rstrip("/"), one.type.decode(), one.size, one.mtime, one.linkname] for one in archive)


folder, other = sys.argv[1:]
packed = pack_workdir(folder, 10**9)
with open(other, "rb") as file:
    command = entries(file.read())
same = packed.sha256 == pack_workdir(f"{folder}:/srv/app", 10**9).sha256
print(json.dumps({"same": same, "command": command, "python": entries(packed.archive)}))
