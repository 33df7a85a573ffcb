"""Answers queries by SkyPilot's optimizer, for bench/route.ts: one JSON object a line in, one out.

It runs offline: its price lists are files in its home directory, and its check for credentials is replaced.
"""

import csv
import json
import os
import resource
import sys
import time
from pathlib import Path

answers = sys.stdout
# SkyPilot prints its progress on standard output, which is for answers here.
sys.stdout = open(os.devnull, "w")

COLUMNS = (
    "InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price SpotPrice Region Arch AvailabilityZone"
).split()
CATALOGS = Path(os.environ["HOME"], ".sky", "catalogs", "v8")
GPU_INFO = "{{'Gpus': [{{'Name': '{name}', 'MemoryInfo': {{'SizeInMiB': {mib}}}}}], 'TotalGpuMemoryInMiB': {total}}}"


def load(path):
    started = time.perf_counter()
    clouds = {}
    with open(path, newline="") as file:
        for cloud, name, region, usd, cpu, memory, count, gpu, vram, spot, arch in csv.reader(file):
            # In SkyPilot's list of GCP, cards attached to N1 machines have their own prices, which Berth's list lacks.
            if cloud == "gcp" and "_" in name:
                continue
            machine = (name, gpu, count if gpu else "", cpu, memory, vram, arch)
            prices = clouds.setdefault(cloud, {}).setdefault((machine, region), {})
            prices[spot] = min(float(usd), prices.get(spot, float("inf")))
    for cloud, offers in clouds.items():
        rows = [row(cloud, *offer, prices) for offer, prices in offers.items()]
        if cloud == "gcp":
            rows = with_cards_apart(rows)
        # Azure's list has no zones, so the column must be missing: SkyPilot requires zones if it exists.
        width = len(COLUMNS) - (cloud == "azure")
        write(f"{cloud}/vms.csv", COLUMNS[:width], (row[:width] for row in rows))
    names = {gpu for offers in clouds.values() for (_, gpu, *_), _ in offers if gpu}
    write("common/accelerators.csv", ["AcceleratorName", "Clouds"], ([name, "AWS Azure"] for name in sorted(names)))
    prepare()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.perf_counter() - started, "mebibytes": peak}


def row(cloud, machine, region, prices):
    name, gpu, count, cpu, memory, vram, arch = machine
    mib = float(vram) * 1024
    info = GPU_INFO.format(name=gpu, mib=mib, total=mib * float(count)) if gpu else ""
    zone = f"{region}-a" if cloud == "gcp" else f"{region}a"
    arch = "arm64" if arch == "arm64" else "x86_64"
    return [name, gpu, count, cpu, memory, info, prices.get("0", ""), prices.get("1", ""), region, arch, zone]


def with_cards_apart(rows):
    """Moves cards to rows of their own, as in SkyPilot's list of GCP, with the price 0: the machine's includes them."""
    cards = [["", *row[1:3], "", "", row[5], 0, 0, *row[8:]] for row in rows if row[1]]
    return [[row[0], "", "", *row[3:5], "", *row[6:]] for row in rows] + cards


def write(name, columns, rows):
    path = CATALOGS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(rows)


def prepare():
    """Makes a first decision, which reads the files, so that this time counts as loading."""
    import sky.check
    from sky import clouds

    enabled = [clouds.AWS(), clouds.GCP(), clouds.Azure()]
    sky.check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: enabled
    ask({"cpus": "1+", "memory": "1+"})


def ask(query):
    from sky import Dag, Optimizer, Resources, Task, exceptions

    started = time.perf_counter()
    with Dag() as dag:
        task = Task("job", run="true")
        task.set_resources(Resources(**query))
    try:
        Optimizer.optimize(dag, quiet=True)
    except exceptions.ResourcesUnavailableError:
        return {"seconds": time.perf_counter() - started, "usd": None}
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "usd": task.best_resources.get_cost(3600), "pick": str(task.best_resources)}


for line in sys.stdin:
    request = json.loads(line)
    answer = load(request["load"]) if "load" in request else [ask(query) for query in request["queries"]]
    print(json.dumps(answer), file=answers, flush=True)
