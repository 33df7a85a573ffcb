"""What Airflow reads about its provider, without an import of Airflow."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Returns the provider's description, by Airflow's provider_info.schema.json."""
    module = "berth.airflow"
    return {
        "package-name": "berth-jobs",
        "name": "Berth",
        "description": "Runs container jobs on the cheapest cloud VM that fits.",
        "integrations": [{"integration-name": "Berth", "tags": ["service"]}],
        "operators": [{"integration-name": "Berth", "python-modules": [module]}],
        "hooks": [{"integration-name": "Berth", "python-modules": [module]}],
        "triggers": [{"integration-name": "Berth", "python-modules": [module]}],
        "extra-links": [f"{module}.BerthJobLink"],
        "connection-types": [
            {
                "connection-type": "berth",
                "hook-class-name": f"{module}.BerthHook",
                "hook-name": "Berth",
                "conn-fields": {"project": {"label": "Project", "schema": {"type": ["string", "null"]}}},
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "schema", "port"],
                    "relabeling": {"host": "URL", "password": "API key"},
                    "placeholders": {"host": "https://berth.example.com"},
                },
            }
        ],
    }
