#!/usr/bin/env python3
"""Writes the Grafana dashboards of the Helm chart.

generate.py           write them
generate.py --check   fail and list the dashboards that are out of date
"""

import argparse
import sys
from pathlib import Path

from fleet import FLEET
from grafana import render
from job import JOB

DASHBOARDS = Path(__file__).resolve().parents[2] / "helm" / "grpo-operator" / "dashboards"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for view in (JOB, FLEET):
        path, text = DASHBOARDS / f"{view.uid}.json", render(view)
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if not check:
                path.write_text(text)
    for path in stale:
        print(f"{path} {'is out of date' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
