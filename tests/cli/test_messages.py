"""What is wrong is told in one sentence, in the words of whoever typed it, with what to do: a table
of wrong inputs.
"""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

from dptopk.cli import app

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
TOPK = "topk c.csv --k 2 --epsilon 1 --delta 1e-6"
EVENTS = "topk e.csv --k 2 --epsilon 1 --delta 1e-6 --user-col user --item-col item"
IN_LEDGER = TOPK + " --ledger good.db --dataset d --analyst ann"
EPS = "--epsilon 1 --delta 1e-6"

# A command line, and what its refusal must say; T, E, L: a question about counts, about events, in
# a ledger.
WRONG = {
    # the file
    f"topk nofile.csv --k 2 {EPS}": "cannot open|'nofile.csv'",
    f"topk folder --k 2 {EPS}": ".csv|.parquet|'folder'",
    f"topk x.xlsx --k 2 {EPS}": "'x.xlsx' is a workbook|as CSV",
    f"topk empty.csv --k 2 {EPS}": "'empty.csv'|empty",
    f"topk bad.parquet --k 2 {EPS}": "'bad.parquet'|parquet",
    f"topk bad.jsonl --k 2 {EPS}": "'bad.jsonl'|jsonl",
    f"topk array.json --k 2 {EPS}": "'array.json'|json",
    f"topk dup.csv --k 2 {EPS}": "two columns 'count'",
    f"topk words.csv --k 2 {EPS}": "--label-col: 'words.csv' has no column 'label'",
    f"topk negative.csv --k 2 {EPS}": "--count-col|negative",
    f"topk fraction.csv --k 2 {EPS}": "--count-col|fractional",
    f"topk text.csv --k 2 {EPS}": "--count-col|whole numbers|text",
    f"topk e.csv --k 2 {EPS}": "--label-col|--user-col and --item-col",
    # how it is read
    "T --encoding klingon": "--encoding|'klingon'",
    "T --label-col nope": "--label-col|'nope'",
    "T --count-col nope": "--count-col|'nope'",
    "T --count-col label": "--count-col must be a different column",
    "T --sep ;": "--label-col|it has 'label,count",
    "T --sep ''": "--sep must be a character",
    "T --where day": "--where|COLUMN=VALUE",
    "T --where day=mon": "--where|no column 'day'",
    "T --where label=a --where label=b": "--where|two values in one column",
    # numbers
    f"topk c.csv --k 0 {EPS}": "--k must be at least 1, got 0",
    f"topk c.csv --k -3 {EPS}": "--k must be at least 1, got -3",
    f"topk c.csv --k ten {EPS}": "--k must be a whole number, got 'ten'",
    f"topk c.csv --k 1.5 {EPS}": "--k must be a whole number, got '1.5'",
    f"topk c.csv --k 2000000 {EPS}": "--k must be at most 1000000, got 2000000",
    f"topk c.csv {EPS}": "'--k'|--help",
    "topk c.csv --k 2": "--epsilon|--accuracy",
    "topk c.csv --k 2 --epsilon 1": "--delta must be above 0|1/(10 users)",
    "topk c.csv --k 2 --epsilon 0 --delta 1e-6": "--epsilon must be greater than 0",
    "topk c.csv --k 2 --epsilon -1 --delta 1e-6": "--epsilon must be greater than 0, got -1",
    "topk c.csv --k 2 --epsilon nan --delta 1e-6": "--epsilon must be finite",
    "topk c.csv --k 2 --epsilon inf --delta 1e-6": "--epsilon must be finite",
    "topk c.csv --k 2 --epsilon one --delta 1e-6": "--epsilon must be a number, got 'one'",
    "topk c.csv --k 2 --epsilon 1 --delta 1": "--delta must be in [0, 1)",
    "topk c.csv --k 2 --epsilon 1 --delta -1": "--delta must be in [0, 1)",
    "topk c.csv --k 2 --epsilon 1 --delta nan": "--delta must be finite",
    "topk c.csv --k 2 --epsilon 1 --accuracy 5 --delta 1e-6": "exactly one|--epsilon|--accuracy",
    "topk c.csv --k 2 --epsilon 1 --rho 0.1 --delta 1e-6": "exactly one|--epsilon, --rho and "
    "--accuracy",
    "topk c.csv --k 2 --rho -1 --delta 1e-6": "--rho must be greater than 0, got -1",
    "topk c.csv --k 2 --rho 0.1": "--delta must be above 0",
    "topk c.csv --k 2 --rho 0.1 --delta 1e-6 --look 0.1": "--look: needs a budget in ε and δ, "
    "not in ρ",
    "topk c.csv --k 2 --accuracy 5 --delta 1e-6 --look 0.1": "--look: needs a budget in ε and "
    "δ|no accuracy",
    "topk c.csv --k 2 --accuracy 0 --delta 1e-6": "--accuracy must be greater than 0",
    "topk c.csv --k 2 --accuracy nan --delta 1e-6": "--accuracy must be finite",
    "topk c.csv --k 2 --accuracy 5 --delta 1e-6 --counts none": "--accuracy must be left out "
    "where no counts",
    "T --users 5000000000000000000": "--users must be at most 2^62",
    f"topk c.csv --k 2 --epsilon 1 --users {10**30}": "--users must be at most 2^62",
    "T --users 0": "--users must be at least 1, got 0",
    "T --users many": "--users must be a whole number, got 'many'",
    "T --labels-per-user 0": "--labels-per-user must be at least 1, got 0",
    "T --labels-per-user few": "--labels-per-user must be a whole number, got 'few'",
    "T --per-label-cap 0": "--per-label-cap must be at least 1, got 0",
    "T --d-bar 1": "--d-bar must be at least 2, got 1",
    "T --method nope": "--method must be one of|'nope'",
    "T --counts nope": "--counts must be one of|'gaussian'|'nope'",
    "T --confidence 0": "--confidence must be in (0, 1)",
    "T --confidence 95": "--confidence must be in (0, 1), got 95",
    "T --confidence 95%": "--confidence must be a number, got '95%'",
    "T --seed -1": "--seed must be at least 0",
    "T --seed x": "--seed must be a whole number, got 'x'",
    "T --look 0": "--look must be in (0, 1)",
    "T --look 2": "--look must be in (0, 1)",
    "T --look nan": "--look must be finite",
    "T --look much": "--look must be auto, none or a number, got 'much'",
    "E --look 0.5 --min-users 2": "--look 0.5 asks for an answer in one phase, --min-users 2",
    # what is written
    "T --format nope": "--format must be one of|'markdown'|'nope'",
    "T --format parquet": "--format|--out",
    "T --out nowhere/x --format csv": "--out|folder|'nowhere/x'",
    "T --out folder": "--out: 'folder' is a folder",
    "T --out c.csv --format csv": "--out|'c.csv'|read by this very command",
    "T --plot x.gif": "--plot|.png or .svg|'x.gif'",
    "T --plot x.png --counts none": "--plot|--counts none",
    "T --plot x.png --out x.png": "--plot|same file",
    # public labels
    "T --domain nofile.txt": "--domain|'nofile.txt'",
    "T --domain words.csv": "--domain|'words.csv' is a table|one a line",
    "T --domain twice.txt": "--domain|twice",
    "T --domain none.txt": "--k 2 is more than the 0 labels of the public domain",
    "T --domain folder": "--domain|'folder'",
    "topk c.csv --k 9 --epsilon 1 --known-domain": "--k 9 is more than the 3 labels of the "
    "public domain",
    "topk c.csv --k 9 --epsilon 1 --domain labels.txt": "--k 9 is more than the 3 labels of the "
    "public domain",
    "topk c.csv --k 9 --epsilon 1 --known-domain --labels-per-user 1 --method threshold": "--k 9|3 labels",
    "L --k 4 --known-domain --counts laplace": "--k 4|3 labels",
    # events
    "T --user-col user": "--user-col and --item-col go together",
    "E --item-col nope": "--item-col|no column 'nope'",
    "E --user-col nope": "--user-col|no column 'nope'",
    "E --item-col user": "--item-col must be a different column|'user'",
    "E --memory-limit lots": "--memory-limit must be a size such as '4GB'|'lots'",
    "E --memory-limit -1GB": "--memory-limit must be a size|'-1GB'",
    "E --passes 0": "--passes must be at least 1",
    "E --passes 99999999999999999999": "--passes must be at most 10000",
    "E --sep ;": "--user-col|no column 'user'; it has",
    "E --decimal ,": "--decimal is for counts",
    "E --label-col item": "--label-col and --count-col are for tables of counts",
    "E --where nope=1": "--where|no column 'nope'",
    "E --delta 0": "--delta must be above 0",
    "E --segment-by nope --segments x": "--segment-by|no column 'nope'",
    f"topk twousers.csv --k 2 {EPS} --user-col user --item-col item": "'twousers.csv' has two "
    "columns 'user'|rename",
    f"topk twoitems.csv --k 2 {EPS} --user-col user --item-col item": "'twoitems.csv' has two "
    "columns 'item'|rename",
    f"topk nofile.csv --k 2 {EPS} --user-col user --item-col item": "no file 'nofile.csv'",
    f"topk bad.parquet --k 2 {EPS} --user-col user --item-col item": "parquet|damaged",
    f"topk empty.csv --k 2 {EPS} --user-col user --item-col item": "'empty.csv'|names the columns",
    f"topk x.xlsx --k 2 {EPS} --user-col user --item-col item": "'x.xlsx' is a workbook|as CSV",
    f"topk folder --k 2 {EPS} --user-col user --item-col item": "no file 'folder'",
    "T --memory-limit 4GB": "--memory-limit and --passes are for events",
    "T --passes 3": "--memory-limit and --passes are for events",
    "T --count-capped": "--count-capped|--user-col",
    # segments
    "T --segment-by day": "--segment-by and --segments go together",
    "T --segments eu": "--segment-by and --segments go together",
    "T --segment-by day --segments eu,,us": "--segments|'eu,us'|'eu,,us'",
    "T --segment-by day --segments eu,eu": "--segments|twice",
    "T --segment-by day --segments eu": "--segment-by: 'c.csv' has no column 'day'",
    "T --segments-per-user 1": "--segments-per-user needs --segment-by",
    "T --segment-by label --segments a --segments-per-user 0": "--segments-per-user must be at "
    "least 1",
    "T --segment-by label --segments a --format html": "--segment-by takes|--look SHARE",
    # a ledger
    "T --dataset d": "need --ledger",
    "T --reuse": "--reuse needs --ledger",
    "T --ledger good.db": "--ledger needs --dataset: what is asked about, and --analyst: who asks",
    "T --ledger nofile.db --dataset d --analyst a": "cannot open the ledger 'nofile.db'",
    "T --ledger c.csv --dataset d --analyst a": "not a database",
    "T --ledger mysql://x --dataset d --analyst a": "SQLite file or a PostgreSQL database",
    "T --ledger folder --dataset d --analyst a": "'folder'|regular file",
    "T --ledger good.db --dataset nope --analyst a": "--dataset: 'nope' is not in the ledger; "
    "known: 'd'",
    "T --ledger good.db --dataset d --analyst ''": "--analyst must be non-empty text",
    "L --labels-per-user 3": "--labels-per-user 3 contradicts the ledger",
    "L --per-label-cap 3": "--per-label-cap 3 contradicts the ledger",
    "L --data-version 7": "--data-version: the dataset is at '1', got '7'",
    "L --delta 1e-3": "--delta 0.001|above the ledger's",
    "L --key-file nokey": "--key-file|'nokey'",
    "L --seed 3": "fixed seed|test",
    "L --epsilon 3": "budget exceeded|nothing was charged|--epsilon",
    # what cannot be parsed
    "topk c.csv extra --k 2": "(extra)|--help",
    "topk --k 2": "source|--help",
    "topk c.csv --kk 2": "--kk|--help",
    "topk c.csv --k": "'--k' requires an argument",
    "nope": "'nope'|--help",
    "--nope": "--nope|--help",
    "ledger nope": "'nope'|--help",
    # plans, costs
    "plan --k 2": "--epsilon|--accuracy",
    f"plan --k 2 {EPS} --effort lots": "--effort must be one of|'quick'|'lots'",
    f"plan --k 2 {EPS} --confidence 2": "--confidence must be in (0, 1)",
    f"plan --k 2 {EPS} --d-bar 1": "--d-bar must be at least 2",
    f"plan --k 2 {EPS} --format html": "--format must be one of|'json'|'html'",
    "compose '' --delta 1e-6": "CHARGE|no costs|25*BR(0.1)",
    "compose '  ' --delta 1e-6": "CHARGE|no costs",
    "compose 25 --delta 1e-6": "CHARGE|'25'|25*BR(0.1)",
    "compose 'XX(0.1)' --delta 1e-6": "unknown cost 'XX'|known",
    "compose '25*BR(' --delta 1e-6": "'25*BR('",
    "compose 'BR(-1)' --delta 1e-6": "'BR(-1)'|greater than 0",
    "compose 'BR(a)' --delta 1e-6": "'a'|not a number",
    "compose 'BR(0.1)*3' --delta 1e-6": "25*BR(0.1)",
    "compose '2.5*BR(0.1)' --delta 1e-6": "25*BR(0.1)",
    "compose 'BR(0.1, 0.2)' --delta 1e-6": "'BR(0.1, 0.2)'|epsilon",
    "compose 'BR(0.1)'": "exactly one of --delta and --epsilon",
    "compose 'BR(0.1)' --delta 1e-6 --epsilon 1": "exactly one of --delta and --epsilon",
    "compose 'BR(0.1)' --delta 2": "--delta must be in [0, 1)",
    "compose 'BR(0.1)' --epsilon -1": "--epsilon must be at least 0",
    "compose 'BR(0.1)' --delta 1e-6 --interaction nope": "--interaction must be one "
    "of|'setwise'|'nope'",
    "compose 'BR(0.1)' --delta 1e-6 --max-seconds -1": "--max-seconds must be greater than 0",
    "compose 'BR(0.1)' --delta 1e-6 --format nope": "--format must be one of|'nope'",
    "certify 'BR(0.1)' --delta 1e-6 --out nowhere/x.json": "--out|folder|'nowhere/x.json'",
    "certify '' --delta 1e-6 --out x.json": "CHARGE|no costs",
    "certify 'BR(0.1)' --delta 1e-6 --out folder": "--out: 'folder' is a folder",
    "budget nofile.toml": "nofile.toml: No such file",
    "budget broken.toml": "'broken.toml' is not TOML",
    "budget part.toml": "epsilon, delta|[[query]]",
    "budget unnamed.toml": "no name",
    "budget unknown.toml": "kay|known",
    "budget texts.toml": "epsilon must be a real number, got 'one'",
    "budget part.toml --days 0": "--days must be at least 1",
    "budget part.toml --schedule nowhere/x.csv": "--schedule|folder",
    "attest KnownLaplace(epsilon=1)": "--known-domain: KnownLaplace needs a public domain",
    # data
    "datasets make x.csv": "OUT: |Parquet|x.parquet",
    "datasets make x.parquet --users -1": "--users must be at least 1",
    "datasets make nowhere/x.parquet --events 10": "OUT: |folder|'nowhere/x.parquet'",
    "datasets macbeth nowhere/x.csv": "OUT: |folder|'nowhere/x.csv'",
    "datasets macbeth folder": "'folder' is a folder",
    "datasets macbeth /dev/null": "OUT: '/dev/null' is a device or a pipe, not a file",
    "T --out /dev/null": "--out: '/dev/null' is a device|leave --out out",
    "demo --seed x": "--seed must be a whole number, got 'x'",
    "reproduce nope": "must be one of|'nope'",
    "refresh new.store e.csv --data-version 1": "'new.store'",
    "refresh new.store e.csv --data-version 1 --ledger good.db": "--ledger and --dataset go "
    "together",
    "refresh new.store e.csv --data-version 1 --labels-per-user 3": "--user-col and --item-col",
    # budgets on disk
    "ledger init good.db --dataset d --epsilon 1 --delta 1e-6": "--dataset: the dataset 'd' "
    "already exists",
    "ledger init n.db --dataset d --delta 1e-6": "--registered, --epsilon and --rho",
    "ledger init n.db --dataset d --epsilon 1 --rho 1 --delta 1e-6": "exactly one",
    "ledger init n.db --dataset d --epsilon 0 --delta 1e-6": "--epsilon must be greater than 0",
    "ledger init n.db --dataset d --epsilon 1 --delta 1": "--delta must be in [0, 1)",
    "ledger init n.db --dataset '' --epsilon 1 --delta 1e-6": "--dataset must be non-empty text",
    "ledger init n.db --dataset d --epsilon 1 --delta 1e-6 --labels-per-user 0": "--labels-per-user must be at least 1",
    "ledger init n.db --dataset d --registered nope --delta 1e-6": "--registered|'nope'|25*BR(0.1)",
    "ledger init n.db --dataset d --registered '' --delta 1e-6": "--registered: no costs",
    "ledger init n.db --dataset d --epsilon 1 --delta 1e-6 --failure-delta 1": "--failure-delta "
    "must be in [0, 1)",
    "ledger init n.db --dataset d --share ann --delta 1e-6": "--share must be such as|'ann'",
    "ledger init n.db --dataset d --share 'ann=x(1)' --delta 1e-6": "--share|'x'",
    "ledger init n.db --dataset d --delta 1e-6 --share ann=0.5,1e-7 --share 'ann=50*BR(0.1)'": "--share: 'ann' is named twice",
    "ledger init n.db --dataset d --delta 1e-6 --query 'k=5 k=9 epsilon=0.5'": "--query: 'k' is named twice",
    "ledger init n.db --dataset d --query k=x --delta 1e-6": "--query must be such as|'k=x'",
    "ledger init n.db --dataset d --epsilon 1 --delta 1e-6 --ranges a,b": "--ranges must be "
    "numbers|'a,b'",
    "ledger init n.db --dataset d --epsilon 1 --delta 1e-6 --costs nope": "--costs|'nope'",
    "ledger init n.db --dataset d --epsilon 1 --delta 1e-6 --segment-by x": "--segment-by and "
    "--segments go "
    "together",
    "ledger init nowhere/n.db --dataset d --epsilon 1 --delta 1e-6": "cannot create the ledger",
    "ledger show nofile.db": "cannot open the ledger 'nofile.db'",
    "ledger show good.db --dataset nope": "--dataset: 'nope' is not in the ledger",
    "ledger show good.db --plot x.gif": "--plot|.png",
    "ledger renew good.db --dataset d --epsilon 1 --delta 1e-6": "'--reason'|--help",
    "ledger renew good.db --dataset d --epsilon 1 --delta 1e-6 --reason ''": "--reason must say "
    "why",
    "ledger limit good.db --dataset nope --analyst a --epsilon 1 --delta 1e-6": "--dataset: 'nope'",
    "ledger set-version good.db --dataset d --version ''": "--version must be non-empty text",
    "ledger rekey good.db --key-file nokey --new-key-file key": "--key-file|'nokey'",
    "ledger accept-restore good.db --reason x": "--head-file: the ledger has the entry",
    "ledger accept-restore good.db --reason ''": "--reason must be non-empty text",
    "ledger verify nofile.db": "cannot open the ledger 'nofile.db'",
    "ledger verify good.db --head nohead": "--head: 'nohead' does not exist",
    "ledger verify good.db --head-file nohead": "--head-file: 'nohead' does not exist",
    "ledger verify good.db --head c.csv": "--head: 'c.csv' is not an exported head|ledger export",
    "ledger export good.db --out good.db": "--out|'good.db'",
    "ledger backup good.db --out good.db": "'good.db' exists already",
    "ledger analyst list nofile.toml": "'nofile.toml'",
    "serve": "--demo",
    "serve --demo --check": "--check|for a catalog",
    "serve --demo broken.toml": "give a catalog, or --demo",
    "serve broken.toml --reason new": "--reason goes with --apply",
    "serve broken.toml --check --reason new": "--reason goes with --apply",
    "serve --demo --reason new": "--reason goes with --apply",
    "serve nofile.toml": "'nofile.toml'",
    "serve broken.toml": "'broken.toml' is not TOML",
    "serve broken.toml --port x": "--port must be a whole number, got 'x'",
    "serve broken.toml --port 99999999": "--port must be at most 65535",
    # of ρ, of a ledger's files, and of code that cannot be loaded
    "topk c.csv --k 2 --rho 0.1 --delta 1e-6 --segment-by day --segments mon,tue": "--rho|--segments-per-user 1",
    "T --head-file h.json": "--head-file, --dataset and --analyst need --ledger",
    "L --out good.db-wal": "--out|'good.db-wal'|lost",
    "L --head-file h.txt --out h.txt": "--out|'h.txt'|lost",
    "refresh s.db e.csv --data-version 1 --user-col user --item-col item --head-file h.json": "--head-file need",
    "ledger verify good.db --head h.json --head-file h.json": "one of --head and --head-file",
    "ledger init s.db --dataset d --delta 1e-6 --share ann=1,1e-7 --failure-delta 1e-8": "--share|--failure-delta",
    "audit raises.py:f --epsilon 1": "cannot load 'raises.py:f'",
    "audit keys.py:f --epsilon 1": "cannot load 'keys.py:f'",
    "audit exits.py:f --epsilon 1": "cannot load 'exits.py:f'",
    "audit broken.py:f --epsilon 1": "cannot load 'broken.py:f'",
    "audit keys.py --epsilon 1": "module:name",
    "audit .x:f --epsilon 1": "cannot load '.x:f'",
    "audit plain.py:nothing --epsilon 1": "no 'nothing' in 'plain.py'",
    "audit plain.py:mechanism --epsilon 1": "function of a dict",
    # of a stream, a certificate, an attestation
    "stream create b.stream --k 2 --days 5 --epsilon 1 --delta 0 --labels-per-user 1": "--delta "
    "must be "
    "above 0",
    "stream create b.stream --k 2 --days 5 --epsilon 1 --delta 1e-6 --labels-per-user 1 "
    "--first-day x": "--first-day",
    "stream create b.stream --k 2 --days 5000 --epsilon 1 --delta 1e-6 --labels-per-user 1": "--days must be at most",
    "plan --k 2 --epsilon 1 --delta 1e-6 --known-domain --d-bar 10": "--d-bar must be left out "
    "in a public domain",
    "plan --k 2 --epsilon 1 --delta 1e-6 --d-bar 99999999999999999999": "--d-bar must be at "
    "most 2^62",
    "plan --k 2 --epsilon 1 --delta 1e-6 --method 'Gumbel selections' --counts gaussian": "does not go with",
    "certify 'GDP(0.1)' --delta 0 --out y.json": "no finite ε that can be certified",
    "attest 'KnownGumbel(k=1, epsilon=1)' --known-domain --claim 'XX(1)'": "--claim: unknown "
    "cost 'XX'",
    "attest 'TruncatedLaplace(epsilon=1)'": "TruncatedLaplace needs delta too",
    "attest 'KnownGumbel(k=1, epsilon=1)' --known-domain --labels 26": "--labels 26 are too many",
    "attest 'KnownGumbel(k=1, epsilon=1)' --known-domain --per-label-cap 99999": "--labels 2 "
    "are too many",
    "attest events --epsilon 1 --delta 0.01 --users 0": "--users must be at least 1, got 0",
    "attest events --epsilon 1 --delta 0.01 --labels-per-user 0": "--labels-per-user must be at "
    "least 1, got 0",
    **{
        f"attest 'KnownLaplace(epsilon=4.0)' --known-domain {stray}": 'go with "events" alone'
        for stray in ("-k 1", "--find coins", "--counts box")
    },
    **{
        f"attest events --epsilon 1 --delta 0.01 {stray}": 'do not go with "events"'
        for stray in ("--largest 2", "--near 3", "--known-domain")
    },
    "audit plain.py:f --epsilon 1 --labels 50": "--labels must be at most 26",
    "ledger statement good.db --dataset d --about vendor=x": "--about must name curator",
    "ledger statement good.db --dataset d --about curator=x --about curator=y": "--about: 'curator' is named twice",
    "refresh good.db e.csv --data-version 1 --user-col user --item-col item": "'good.db' is no "
    "store of events",
}
CODES = {"L --k 4": 2, "L --epsilon 3": 3}
# Words of a library, of an engine, or of the innards.
FOREIGN = re.compile(
    r"Input should|Value error|Exception|Traceback|linf|\bl0\b|\w+Error\b|(--[\w-]+): \1\b"
)
FILES = {
    "c.csv": "label,count\na,900\nb,800\nsecret4711,700\n",
    "words.csv": "word,n\na,900\n",
    "semi.csv": "label;count\na;900\n",
    "negative.csv": "label,count\na,-5\n",
    "fraction.csv": "label,count\na,5.5\n",
    "text.csv": "label,count\na,lots4711\n",
    "dup.csv": "label,count,count\na,1,2\n",
    "empty.csv": "",
    "e.csv": "user,item,day\n" + "".join(f"u{i},i{i % 3},mon\n" for i in range(60)),
    "twousers.csv": "user,user,item\nu1,u2,a\n",
    "twoitems.csv": "user,item,item\nu1,u2,a\n",
    "long.csv": "label,count\na,1,2,3\n",
    "x.xlsx": "PK",
    "bad.parquet": "PAR?",
    "bad.jsonl": "{a\n",
    "array.json": "[1,2]\n",
    "labels.txt": "a\nb\nc\n",
    "twice.txt": "a\na\nc\n",
    "none.txt": "",
    "broken.toml": "x=",
    "part.toml": "epsilon=1\n",
    "unnamed.toml": 'epsilon=1\ndelta=1e-6\n[[query]]\nk=10\n',
    "unknown.toml": 'epsilon=1\ndelta=1e-6\n[[query]]\nname="a"\nkay=3\n',
    "texts.toml": 'epsilon="one"\ndelta=1e-6\n[[query]]\nname="a"\nk=3\n',
    "raises.py": "f = (1).nothing\n",
    "keys.py": "f = {}['f']\n",
    "exits.py": "raise SystemExit(0)\n",
    "broken.py": "f = (\n",
    "plain.py": "from dptopk import KnownLaplace\nmechanism = KnownLaplace(epsilon=1.0)\n",
    "key": "0123456789abcdef0123456789abcdef",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All files that the table names."""
    made = tmp_path_factory.mktemp("wrong")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    (made / "latin.csv").write_bytes("label,count\ncaf\xe9,100\n".encode("latin-1"))
    (made / "folder").mkdir()
    (made / "key").chmod(0o600)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        assert (
            run(
                "ledger init good.db --dataset d --epsilon 1 --delta 1e-6 --labels-per-user 1"
            ).exit_code
            == 0
        )
    return made


def run(line):
    for short, text in (("T ", TOPK), ("E ", EVENTS), ("L ", IN_LEDGER)):
        if line.startswith(short):
            line = f"{text} {line[2:]}"
    return RUNNER.invoke(app, shlex.split(line))


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_told_in_one_sentence(folder, line, monkeypatch):
    monkeypatch.chdir(folder)
    result = run(line)
    told = [
        text for text in result.stderr.splitlines() if text and not text.startswith("Warning: ")
    ]
    assert result.exit_code == next(
        (code for start, code in CODES.items() if line.startswith(start)), result.exit_code
    )
    assert result.exit_code in {2, 3, 4}, result.output
    assert result.stdout == ""
    assert len(told) == 1, told
    assert told[0].startswith("Error: "), told
    for words in WRONG[line].split("|"):
        assert words in told[0], told[0]
    assert line.startswith("audit") or not FOREIGN.search(told[0].removeprefix("Error: ")), told[0]
    assert "4711" not in told[0]


def test_nothing_was_charged_by_any_of_them(folder, monkeypatch):
    monkeypatch.chdir(folder)
    shown = run("ledger show good.db --format json")
    assert '"queries"' not in shown.stdout
