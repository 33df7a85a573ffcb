"""Answers queries by gpuhunt's own matching, for bench/route.ts: one JSON object a line in, one out."""

import csv
import json
import resource
import sys
import time

from gpuhunt import Catalog
from gpuhunt._internal.catalog import ProviderCatalog
from gpuhunt._internal.models import AcceleratorVendor, CatalogItem, CPUArchitecture

catalog = Catalog(balance_resources=False, auto_reload=False)


def load(path):
    started = time.perf_counter()
    items = {}
    with open(path, newline="") as file:
        for cloud, name, region, usd, cpu, memory, count, gpu, vram, spot, arch in csv.reader(file):
            maker = AcceleratorVendor.AMD if ":" in gpu else AcceleratorVendor.NVIDIA
            items.setdefault(cloud, []).append(
                CatalogItem(
                    provider=cloud,
                    instance_name=name,
                    location=region,
                    price=float(usd),
                    cpu=float(cpu),
                    memory=float(memory),
                    gpu_count=float(count) if gpu else 0,
                    gpu_name=gpu or None,
                    gpu_memory=float(vram) if gpu else None,
                    spot=spot == "1",
                    disk_size=None,
                    gpu_vendor=maker if gpu else None,
                    cpu_arch=CPUArchitecture.ARM if arch == "arm64" else CPUArchitecture.X86,
                )
            )
    # Cheapest first, like gpuhunt's own list of a cloud.
    catalog.catalog = {
        cloud: ProviderCatalog("bench", sorted(offers, key=lambda offer: offer.price))
        for cloud, offers in items.items()
    }
    catalog.loaded_at = time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.perf_counter() - started, "mebibytes": peak}


def ask(query):
    started = time.perf_counter()
    found = catalog.query(**query)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "usd": found[0].price if found else None}


for line in sys.stdin:
    request = json.loads(line)
    answer = load(request["load"]) if "load" in request else [ask(query) for query in request["queries"]]
    print(json.dumps(answer), flush=True)
