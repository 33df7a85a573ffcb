"""Reads the offers, and logs what happens meanwhile."""

import logging

import berth

logging.basicConfig(format="%(message)s")
logging.getLogger("berth").setLevel("INFO")
berth.offers(cpu=1)
