#!/usr/bin/env bash
# Updates the recorded renderings of the chart (deploy/hub-addons.yaml, charts/hub-addons/tests/rendered.txt), and
# deploy/crd. Tests compare them; `git diff` shows what has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
RECORD=1 exec cargo test --locked --workspace --features e2e --test chart -- render::objects render::plain render::the_crd
