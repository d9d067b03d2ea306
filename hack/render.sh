#!/usr/bin/env bash
# Records anew what is rendered from the chart (deploy/hub-addons.yaml, charts/hub-addons/tests/rendered.txt) and
# what the chart has from the program (the CRDs). Tests compare; see `git diff` for what has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
HUB_ADDONS_RECORD=1 exec cargo test --locked --package hub-addons --test chart -- render::objects render::plain render::the_crds
